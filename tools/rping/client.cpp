// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tools/rping/client.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "tools/iwarp/endpoint.h"
#include "tools/rping/log.h"
#include "tools/rping/session.h"

namespace ddpsock::rping {
namespace {

// Memory that a server is told of.
struct Buffer {
  std::vector<uint8_t> bytes;
  Advert advert;
};

Result<Buffer, Error> make_buffer(iwarp::Endpoint& endpoint, uint32_t size, engine::Rights rights) {
  Buffer buffer{.bytes = std::vector<uint8_t>(size), .advert = {}};
  const auto mr = endpoint.register_memory(buffer.bytes, rights);
  if (!mr) return fail(mr.error());
  buffer.advert = {.to = mr->base_to, .stag = mr->stag, .size = size};
  return buffer;
}

std::string advice_on(const mpa::StartupFailure& failure) {
  switch (failure.error) {
    case mpa::StartupError::kNotMpa:
      return "; is that rping's port (-p)?";
    case mpa::StartupError::kTimedOut:
      return "; is that rping's port (-p)? A slow peer may need --timeout";
    case mpa::StartupError::kClosed:
    case mpa::StartupError::kTruncated:
      return "; is that rping's port (-p)? An old peer may need --mpa-rev 1";
    case mpa::StartupError::kRevision1Only:
      return "; try --mpa-rev 1";
    case mpa::StartupError::kRejected: {
      const Bytes said = failure.private_data.bytes();
      return said.empty() ? "" : ", which says: " + to_text(said);
    }
    default:
      return "";
  }
}

connecting::Call call_of(const Options& options) {
  // As rping asks for: one Read at a time.
  return {.startup = {.revision = options.revision.value_or(MPA_REVISION_ENHANCED),
                      .wants_crc = options.wants_crc,
                      .is_peer_to_peer = options.is_peer_to_peer,
                      .rtr_offer = options.rtr,
                      .ird = 1,
                      .ord = 1,
                      .private_data = options.private_data,
                      .timeouts = {.request = options.timeout, .reply = options.timeout}},
          .may_fall_back = !options.revision,
          .tcp_timeout = options.timeout};
}

Status<Error> connect(iwarp::Endpoint& endpoint, const Options& options) {
  const auto to = iwarp::Address::resolve(options.address, options.port);
  if (!to) return fail(to.error());
  std::optional<iwarp::Address> source;
  if (!options.source.empty()) {
    const auto found = iwarp::Address::resolve(options.source, 0);
    if (!found) return fail(found.error());
    source = *found;
  }
  const auto connected = endpoint.connect(*to, call_of(options), source);
  if (!connected) {
    Error error = connected.error();
    error.text = to->to_text() + ": " + error.text;
    error.text += error.startup ? advice_on(*error.startup)
                                : "; is the server running, and address and port right?";
    return fail(error);
  }
  tell(options, "connected to {}: {}", to->to_text(), to_text(endpoint.agreement()));
  const Bytes said = endpoint.agreement().private_data.bytes();
  if (!said.empty()) tell(options, "the server's private data: {}", to_text(said));
  return {};
}

class Client {
 public:
  Client(iwarp::Endpoint& endpoint, const Options& options, Buffer source, Buffer sink)
      : session_(endpoint, options.timeout),
        options_(options),
        source_(std::move(source)),
        sink_(std::move(sink)) {}

  Session& session() { return session_; }

  Status<Error> ping(uint32_t number) {
    fill(source_.bytes, number);
    // What is left of the ping before must not pass for an answer.
    std::fill(sink_.bytes.begin(), sink_.bytes.end(), uint8_t{0xff});
    if (auto read = tell_and_wait(source_, "the server's RDMA Read"); !read) return read;
    if (auto written = tell_and_wait(sink_, "the server's RDMA Write"); !written) return written;
    if (options_.must_validate) {
      if (auto compared = compare(sink_.bytes, source_.bytes); !compared) return compared;
    }
    if (options_.is_verbose) fmt::print("ping data: {}\n", to_text(sink_.bytes));
    return {};
  }

 private:
  Status<Error> tell_and_wait(const Buffer& buffer, const std::string& what) {
    const Advert& advert = buffer.advert;
    tell(options_, "advertising {} bytes, TO {:#x}, STag {:#x}", advert.size, advert.to,
         advert.stag);
    if (auto sent = session_.send(encode(advert)); !sent) return sent;
    const auto message = session_.receive("waiting for " + what);
    if (!message) return fail(message.error());
    if (!*message) return iwarp::fail_with("the server closed before " + what + " was done");
    return {};
  }

  Session session_;
  const Options& options_;
  Buffer source_;
  Buffer sink_;
};

Status<Error> ping_all(Client& client, const Options& options) {
  for (uint32_t number = 0; options.count == 0 || number < options.count; ++number) {
    if (const auto done = client.ping(number); !done) {
      return iwarp::fail_with(fmt::format("ping {}: {}", number, done.error().text));
    }
  }
  return {};
}

}  // namespace

Status<Error> run_client(const Options& options) {
  const auto endpoint = make_endpoint();
  if (!endpoint) return fail(endpoint.error());
  auto source = make_buffer(**endpoint, options.size, rdmap::kRemoteRead);
  if (!source) return fail(source.error());
  auto sink = make_buffer(**endpoint, options.size, rdmap::kRemoteWrite);
  if (!sink) return fail(sink.error());
  Client client(**endpoint, options, std::move(*source), std::move(*sink));
  if (auto posted = client.session().post_receives(); !posted) return posted;
  if (auto connected = connect(**endpoint, options); !connected) return connected;
  if (auto pinged = ping_all(client, options); !pinged) {
    client.session().abandon();
    return pinged;
  }
  tell(options, "{} pings of {} bytes done", options.count, options.size);
  return client.session().close();
}

}  // namespace ddpsock::rping
