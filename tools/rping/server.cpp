// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tools/rping/server.h"

#include <atomic>
#include <memory>
#include <semaphore>
#include <thread>
#include <vector>

#include "tools/rping/log.h"
#include "tools/rping/session.h"

namespace ddpsock::rping {
namespace {

// At a time, with -P; more wait in the kernel's queue.
constexpr ptrdiff_t kMaxClients = 64;

// One client, after start-up.
class Service {
 public:
  Service(iwarp::Endpoint& endpoint, const Options& options)
      : endpoint_(endpoint), session_(endpoint, options.timeout), options_(options) {}

  Session& session() { return session_; }

  Status<Error> prepare() {
    data_.resize(options_.size);
    const auto mr = endpoint_.register_memory(data_, rdmap::kLocalWrite);
    if (!mr) return fail(mr.error());
    sink_ = *mr;
    return session_.post_receives();
  }

  // Until the client has closed.
  Status<Error> serve() {
    for (uint32_t number = 0;; ++number) {
      const auto fail_at = [number](const Error& error) {
        return iwarp::fail_with(fmt::format("ping {}: {}", number, error.text));
      };
      const auto message = session_.receive("waiting for the client's source");
      if (!message) return fail_at(message.error());
      if (!*message) return check_count(number);
      if (const auto done = answer(number, decode(**message)); !done) return fail_at(done.error());
    }
  }

 private:
  Status<Error> answer(uint32_t number, const Advert& source) {
    tell(options_, "the client's source: {} bytes, TO {:#x}, STag {:#x}", source.size, source.to,
         source.stag);
    if (auto checked = check_source(source, options_.size); !checked) return checked;
    if (auto done = read(source); !done) return done;
    const MutBytes data = MutBytes(data_).first(source.size);
    if (options_.must_validate) {
      std::vector<uint8_t> expected(source.size);
      fill(expected, number);
      if (auto compared = compare(data, expected); !compared) return compared;
    }
    if (options_.is_verbose) fmt::print("server ping data: {}\n", to_text(data));
    if (auto sent = session_.send(kGoOn); !sent) return sent;
    return write_back(data);
  }

  Status<Error> read(const Advert& source) {
    return session_.perform({.op = engine::op::Read{.sink_stag = sink_.stag,
                                                    .sink_to = sink_.base_to,
                                                    .length = source.size,
                                                    .stag = source.stag,
                                                    .to = source.to}},
                            "reading the client's source");
  }

  Status<Error> write_back(Bytes data) {
    const auto message = session_.receive("waiting for the client's sink");
    if (!message) return fail(message.error());
    if (!*message) return iwarp::fail_with("the client closed before it advertised its sink");
    const Advert sink = decode(**message);
    tell(options_, "the client's sink: {} bytes, TO {:#x}, STag {:#x}", sink.size, sink.to,
         sink.stag);
    if (auto checked = check_sink(sink, static_cast<uint32_t>(data.size())); !checked) {
      return checked;
    }
    const engine::op::Write write{.payload = {&data, 1}, .stag = sink.stag, .to = sink.to};
    if (auto done = session_.perform({.op = write}, "writing to the client's sink"); !done) {
      return done;
    }
    return session_.send(kGoOn);
  }

  Status<Error> check_count(uint32_t served) const {
    tell(options_, "the client closed after {} pings", served);
    if (options_.count == 0 || served == options_.count) return {};
    return iwarp::fail_with(
        fmt::format("the client closed after {} pings, expected {} (-C)", served, options_.count));
  }

  iwarp::Endpoint& endpoint_;
  Session session_;
  const Options& options_;
  std::vector<uint8_t> data_;
  engine::Mr sink_;
};

Status<Error> serve(iwarp::Endpoint& endpoint, const Options& options) {
  const Bytes said = endpoint.responder().request().private_data;
  if (!said.empty()) tell(options, "the client's private data: {}", to_text(said));
  Service service(endpoint, options);
  if (auto prepared = service.prepare(); !prepared) return prepared;
  const auto accepted = endpoint.answer(endpoint.responder().accept(
      {.ird = 1, .ord = 1, .private_data = options.private_data}, base::now()));
  if (!accepted) return accepted;
  tell(options, "accepted: {}", to_text(endpoint.agreement()));
  const auto served = service.serve();
  service.session().abandon();
  return served;
}

mpa::ResponderConfig responder_config(const Options& options) {
  return {.wants_crc = options.wants_crc,
          .rtr_accepted = options.rtr,
          .timeouts = {.request = options.timeout, .reply = options.timeout}};
}

// Nothing: it was no client.
std::optional<Status<Error>> try_to_serve(base::UniqueFd fd, const Options& options) {
  const std::string name = iwarp::Address::asked(getpeername, fd.get()).to_text();
  tell(options, "a connection from {}", name);
  const auto endpoint = make_endpoint();
  if (!endpoint) return fail(endpoint.error());
  const auto heard = (*endpoint)->hear(std::move(fd), responder_config(options));
  if (!heard) {
    const Error& error = heard.error();
    const bool is_probe = error.startup && error.startup->error == mpa::StartupError::kClosed;
    if (!is_probe || options.is_debug) complain("turned {} away: {}", name, error.text);
    return std::nullopt;
  }
  auto served = serve(**endpoint, options);
  if (!served) return iwarp::fail_with(name + ": " + served.error().text);
  return served;
}

Time deadline_for_next(const Options& options) {
  return options.wait ? base::now() + *options.wait : kNever;
}

bool is_over(const Options& options, Time deadline) {
  return options.wait && base::now() >= deadline;
}

std::unexpected<Error> fail_alone() {
  return iwarp::fail_with("no client came in time (--wait)");
}

Status<Error> serve_one(iwarp::Listener& listener, const Options& options) {
  const Time deadline = deadline_for_next(options);
  for (;;) {
    auto fd = listener.take(deadline);
    if (!fd && is_over(options, deadline)) return fail_alone();
    if (!fd) return fail(fd.error());
    if (const auto served = try_to_serve(std::move(*fd), options)) return *served;
  }
}

// What the threads of a persistent server share, until the last of them is done.
struct Crowd {
  std::counting_semaphore<kMaxClients> places{kMaxClients};
  std::atomic<uint32_t> served = 0;
  std::atomic<uint32_t> failed = 0;
};

void serve_in_thread(base::UniqueFd fd, const Options& options, std::shared_ptr<Crowd> crowd) {
  std::thread([fd = std::move(fd), options, crowd = std::move(crowd)]() mutable {
    if (const auto served = try_to_serve(std::move(fd), options)) {
      ++crowd->served;
      if (!*served) {
        ++crowd->failed;
        complain("{}", served->error().text);
      }
    }
    crowd->places.release();
  }).detach();
}

Status<Error> verdict_on(const Crowd& crowd) {
  if (crowd.failed != 0) {
    return iwarp::fail_with(
        fmt::format("{} of {} clients failed", crowd.failed.load(), crowd.served.load()));
  }
  if (crowd.served == 0) return fail_alone();
  return {};
}

Status<Error> serve_many(iwarp::Listener& listener, const Options& options) {
  const auto crowd = std::make_shared<Crowd>();
  Status<Error> result;
  for (;;) {
    crowd->places.acquire();
    const Time deadline = deadline_for_next(options);
    auto fd = listener.take(deadline);
    if (!fd) {
      crowd->places.release();
      if (!is_over(options, deadline)) result = fail(fd.error());
      break;
    }
    serve_in_thread(std::move(*fd), options, crowd);
  }
  // Those that are being served are served to their end.
  for (ptrdiff_t i = 0; i < kMaxClients; ++i) crowd->places.acquire();
  return result ? verdict_on(*crowd) : result;
}

}  // namespace

Status<Error> run_server(const Options& options) {
  const auto at = iwarp::Address::resolve(options.address, options.port);
  if (!at) return fail(at.error());
  auto listener = iwarp::Listener::open(*at);
  if (!listener) {
    return iwarp::fail_with(fmt::format("{}: {}", at->to_text(), listener.error().text));
  }
  tell(options, "listening on port {}", listener->port());
  return options.is_persistent ? serve_many(*listener, options) : serve_one(*listener, options);
}

}  // namespace ddpsock::rping
