// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tools/iwarp/endpoint.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <thread>

#include "mpa/format.h"

namespace ddpsock::iwarp {
namespace {

constexpr uint64_t kPing = 1;
constexpr uint64_t kPong = 2;

Time soon() {
  return base::now() + Duration::from_ms(10'000);
}

mpa::PrivateData data(std::string_view text) {
  return *mpa::PrivateData::from(Bytes(reinterpret_cast<const uint8_t*>(text.data()), text.size()));
}

std::string text(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Listener listener() {
  return *Listener::open(*Address::resolve("127.0.0.1", 0));
}

Address at(const Listener& listener) {
  return *Address::resolve("127.0.0.1", listener.port());
}

std::unique_ptr<Endpoint> endpoint() {
  return *Endpoint::make({.max_ird = 4, .max_ord = 4});
}

// An endpoint that has heard the next peer's Request.
std::unique_ptr<Endpoint> hearing(Listener& from) {
  auto end = endpoint();
  const auto heard = end->hear(*from.take(soon()), {});
  EXPECT_TRUE(heard) << heard.error().text;
  return end;
}

Status<Error> accept(Endpoint& end, const mpa::Acceptance& acceptance) {
  return end.answer(end.responder().accept(acceptance, base::now()));
}

// Answers each message with one of the same length, reversed.
void serve_one(Listener& from) {
  auto end = hearing(from);
  EXPECT_EQ(text(end->responder().request().private_data), "hello");
  std::array<uint8_t, 64> buffer;
  const MutBytes room(buffer);
  ASSERT_TRUE(end->post(engine::RecvWr{.id = kPing, .buffer = {&room, 1}}));
  ASSERT_TRUE(accept(*end, {.ird = 2, .ord = 1, .private_data = data("welcome")}));
  const auto got = end->next_completion(soon());
  ASSERT_TRUE(got) << end->describe_end();
  ASSERT_EQ(got->kind, engine::WorkKind::kReceive);
  std::reverse(buffer.begin(), buffer.begin() + got->length);
  const Bytes answer = Bytes(buffer).first(got->length);
  ASSERT_TRUE(
      end->post(engine::SendWr{.id = kPong, .op = engine::op::Send{.payload = {&answer, 1}}}));
  EXPECT_TRUE(end->next_completion(soon()));
  EXPECT_TRUE(end->close(soon()));
  EXPECT_EQ(end->describe_end(), "closed");
}

void call(const Listener& to, const connecting::Call& wish, uint8_t revision) {
  auto end = endpoint();
  std::array<uint8_t, 64> buffer;
  const MutBytes room(buffer);
  ASSERT_TRUE(end->post(engine::RecvWr{.id = kPong, .buffer = {&room, 1}}));
  const auto connected = end->connect(at(to), wish);
  ASSERT_TRUE(connected) << connected.error().text;
  EXPECT_EQ(end->agreement().revision, revision);
  EXPECT_EQ(text(end->agreement().private_data.bytes()), "welcome");
  const std::array<uint8_t, 3> abc{'a', 'b', 'c'};
  const Bytes payload(abc);
  ASSERT_TRUE(
      end->post(engine::SendWr{.id = kPing, .op = engine::op::Send{.payload = {&payload, 1}}}));
  end->flush();
  EXPECT_EQ(end->next_completion(soon())->id, kPing);
  const auto got = end->next_completion(soon());
  ASSERT_TRUE(got) << end->describe_end();
  EXPECT_EQ(got->id, kPong);
  EXPECT_EQ(text(Bytes(buffer).first(got->length)), "cba");
  EXPECT_TRUE(end->close(soon()));
}

connecting::Call greeting() {
  return {.startup = {.ird = 4, .ord = 4, .private_data = data("hello")}, .may_fall_back = true};
}

TEST(Endpoint, ExchangesMessages) {
  Listener from = listener();
  std::thread server([&] { serve_one(from); });
  call(from, greeting(), 2);
  server.join();
}

TEST(Endpoint, IsRejectedWithPrivateData) {
  Listener from = listener();
  std::thread server([&] {
    auto end = hearing(from);
    const auto answered = end->answer(end->responder().reject(data("full"), base::now()));
    ASSERT_FALSE(answered);
    EXPECT_EQ(answered.error().startup->error, mpa::StartupError::kRejected);
  });
  auto end = endpoint();
  const auto connected = end->connect(at(from), greeting());
  server.join();
  ASSERT_FALSE(connected);
  ASSERT_TRUE(connected.error().startup);
  EXPECT_EQ(connected.error().startup->error, mpa::StartupError::kRejected);
  EXPECT_EQ(text(connected.error().startup->private_data.bytes()), "full");
}

TEST(Endpoint, SaysWhyThereIsNoConnection) {
  uint16_t port = 0;
  {
    const Listener gone = listener();
    port = gone.port();
  }
  const auto connected = endpoint()->connect(*Address::resolve("127.0.0.1", port), greeting());
  ASSERT_FALSE(connected);
  EXPECT_EQ(connected.error().text, "connecting: Connection refused");
  EXPECT_FALSE(Address::resolve("no.such.host.invalid", 1));
}

TEST(Endpoint, ConnectsFromTheSourceItIsTold) {
  Listener from = listener();
  std::thread server([&] {
    const auto fd = from.take(soon());  // and closes
    ASSERT_TRUE(fd) << fd.error().text;
    EXPECT_TRUE(Address::asked(getpeername, fd->get()).to_text().starts_with("127.0.0.9 port "));
  });
  EXPECT_FALSE(endpoint()->connect(at(from), {}, Address::resolve("127.0.0.9", 0).value()));
  server.join();
  EXPECT_EQ(at(from).to_text(), "127.0.0.1 port " + std::to_string(from.port()));
  const auto connected =
      endpoint()->connect(at(from), {}, Address::resolve("192.0.2.1", 0).value());
  ASSERT_FALSE(connected);
  EXPECT_EQ(connected.error().text, "binding the source address: Cannot assign requested address");
}

// The first message may be there before the first advance, and then nothing more comes to wake for.
TEST(Endpoint, DoesNotRestBeforeItHasLooked) {
  Listener from = listener();
  std::thread server([&] {
    auto end = hearing(from);
    ASSERT_TRUE(accept(*end, {.ird = 4, .ord = 4}));
    const Time deadline = base::now() + Duration::from_ms(500);
    end->rest(deadline);
    EXPECT_LT(base::now(), deadline);
    EXPECT_TRUE(end->close(soon()));
  });
  auto end = endpoint();
  EXPECT_TRUE(end->connect(at(from), greeting()));
  EXPECT_TRUE(end->close(soon()));
  server.join();
}

TEST(Endpoint, SeesThatThePeerHasCut) {
  Listener from = listener();
  std::thread server([&] {
    auto end = hearing(from);
    std::array<uint8_t, 8> buffer;
    const MutBytes room(buffer);
    ASSERT_TRUE(end->post(engine::RecvWr{.buffer = {&room, 1}}));
    ASSERT_TRUE(accept(*end, {.ird = 4, .ord = 4}));
    EXPECT_TRUE(end->next_completion(soon()));
    end.reset();
  });
  auto end = endpoint();
  const auto connected = end->connect(at(from), greeting());
  ASSERT_TRUE(connected) << connected.error().text;
  ASSERT_TRUE(end->post(engine::SendWr{.id = kPing, .op = engine::op::Send{}}));
  EXPECT_EQ(end->next_completion(soon())->id, kPing);
  server.join();
  EXPECT_FALSE(end->next_completion(soon()));
  EXPECT_TRUE(end->has_ended());
  EXPECT_EQ(end->describe_end(), "the TCP connection was lost");
}

TEST(Endpoint, GivesUpAtTheDeadline) {
  Listener from = listener();
  EXPECT_FALSE(from.take(base::now() + Duration::from_ms(20)));
  std::thread server([&] {
    auto end = hearing(from);
    ASSERT_TRUE(accept(*end, {.ird = 4, .ord = 4}));
    EXPECT_FALSE(end->next_completion(soon()));  // until the peer closes
  });
  auto end = endpoint();
  ASSERT_TRUE(end->connect(at(from), greeting()));
  EXPECT_FALSE(end->next_completion(base::now() + Duration::from_ms(20)));
  EXPECT_FALSE(end->has_ended());
  EXPECT_TRUE(end->close(soon()));
  server.join();
}

TEST(Listener, TurnsAwayWhatIsNotMpa) {
  Listener from = listener();
  const base::UniqueFd plain(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(connect(plain.get(), at(from).get(), at(from).size), 0);
  ASSERT_EQ(send(plain.get(), "GET / HTTP/1.0\r\n", 16, MSG_NOSIGNAL), 16);
  auto end = endpoint();
  const auto heard = end->hear(*from.take(soon()), {});
  ASSERT_FALSE(heard);
  EXPECT_EQ(heard.error().startup->error, mpa::StartupError::kNotMpa);
  char octet;
  EXPECT_LE(recv(plain.get(), &octet, 1, 0), 0);  // closed

  std::thread server([&] { serve_one(from); });
  call(from, greeting(), 2);
  server.join();
}

// A responder that has overlooked the first FPDU, as siw can, looks again when more comes.
TEST(Endpoint, SendsAnEmptyWriteToAPeerThatStaysSilent) {
  constexpr size_t kEmptySend = 24;
  constexpr size_t kEmptyWrite = 20;
  std::array<uint8_t, kEmptySend + kEmptyWrite> heard{};
  Listener from = listener();
  std::thread silent([&] {
    const auto fd = from.take(soon());
    ASSERT_TRUE(fd) << fd.error().text;
    ASSERT_EQ(fcntl(fd->get(), F_SETFL, 0), 0);
    std::array<uint8_t, MPA_MAX_STARTUP_SIZE> frame;
    ASSERT_GT(recv(fd->get(), frame.data(), frame.size(), 0), 0);
    const auto size = mpa::write_startup({.kind = mpa::FrameKind::kReply,
                                          .wants_crc = false,
                                          .enhanced = mpa::Enhanced{.ird = 4, .ord = 4}},
                                         frame);
    ASSERT_EQ(send(fd->get(), frame.data(), *size, MSG_NOSIGNAL), static_cast<ssize_t>(*size));
    EXPECT_EQ(recv(fd->get(), heard.data(), heard.size(), MSG_WAITALL),
              static_cast<ssize_t>(heard.size()));
  });
  auto end = endpoint();
  const auto connected = end->connect(at(from), greeting());
  ASSERT_TRUE(connected) << connected.error().text;
  ASSERT_TRUE(end->post(engine::SendWr{.id = kPing, .op = engine::op::Send{}}));
  EXPECT_EQ(end->next_completion(soon())->id, kPing);
  EXPECT_FALSE(end->next_completion(soon()));  // until the peer closes
  silent.join();
  EXPECT_TRUE(end->has_ended());
  // Length, DDP tagged and last, RDMAP Write, any STag.
  const std::array<uint8_t, 8> write{0x00, 0x0e, 0xc1, 0x40, 0x00, 0x00, 0x00, 0x01};
  EXPECT_TRUE(std::equal(write.begin(), write.end(), heard.begin() + kEmptySend));
}

}  // namespace
}  // namespace ddpsock::iwarp
