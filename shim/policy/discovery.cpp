// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "shim/policy/discovery.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <optional>

#include "base/kernel_call.h"
#include "base/kernel_view.h"
#include "base/process.h"
#include "shim/policy/inet_diag.h"
#include "shim/policy/recent_listeners.h"
#include "shim/policy/registry.h"
#include "shim/policy/spare_descriptor.h"

namespace ddpsock::shim {
namespace {

constexpr int kSoBindToIfindex = 62;   // SO_BINDTOIFINDEX, Linux 5.0
constexpr int kLoopbackInterface = 1;  // of every network namespace (LOOPBACK_IFINDEX)
constexpr int kMostDoubt = 4;          // looks at another user's client that decides
// An entry without addresses is of a connect() that is being made. Nobody takes that long.
constexpr uint32_t kUnfinishedByDead = 10, kUnfinished = 3600;  // seconds
// In another network namespace, which may have ended, nobody can be asked. By then a connection has
// been accepted, unless its server stood still; that takes it for plain.
constexpr uint32_t kAcceptedByThen = 600;  // seconds
constexpr uint32_t kListenSoon = 10;       // from a listener's registration to listen(2), seconds

int int_option(int fd, int option) {
  int value = 0;
  socklen_t length = sizeof value;
  return base::kernel_call(SYS_getsockopt, fd, SOL_SOCKET, option, &value, &length) == 0 ? value
                                                                                         : 0;
}

uint32_t boot_seconds() {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return static_cast<uint32_t>(now.tv_sec);
}

// The user whom the kernel names as the socket's owner (idiag_uid).
std::optional<uid_t> owner_of(int fd) {
  struct stat st;
  if (base::kernel::fstat(fd, st) != 0) return std::nullopt;
  return st.st_uid;
}

// Cookies count up from 1; so far no host comes.
constexpr uint64_t kMessages = uint64_t{1} << 63;

// What a client in DDPMODE says of the socket at the other end.
constexpr uint64_t kOtherEnd = uint64_t{1} << 62;

uint64_t marked(uint64_t cookie, Traffic traffic) {
  return traffic == Traffic::kMessages ? cookie | kMessages : cookie;
}
uint64_t unmarked(uint64_t cookie) {
  return cookie & ~kMessages;
}
SocketKey of_other_end(uint64_t netns, uint64_t cookie) {
  return {netns, cookie | kOtherEnd};
}

SocketKey key_of(int fd, Traffic traffic = Traffic::kStream) {
  const SocketKey key{.netns = netns_cookie(fd), .cookie = socket_cookie(fd)};
  return {key.netns, key.cookie == 0 ? 0 : marked(key.cookie, traffic)};
}

bool is_valid(const SocketKey& key) {
  return key.netns != 0 && key.cookie != 0;
}

// Link-local addresses are looked up with a device, and those of this host with another than
// others.
bool is_link_local(const Address& a) {
  return a.bytes[0] == 0xfe && (a.bytes[1] & 0xc0) == 0x80;
}

// The kernel connects to this host when told to connect to nowhere.
Address destination(Address server) {
  if (!server.is_wildcard()) return server;
  if (server.is_v4()) server.bytes[12] = 127;
  server.bytes[15] = 1;
  return server;
}

bool is_here_and_routable(int fd, const Address& server) {
  const int device = int_option(fd, kSoBindToIfindex);
  return (device == 0 || device == kLoopbackInterface) && !is_link_local(server);
}

// Those that take new clients: neither withdrawn nor gone to where the library is not.
std::optional<Entry> registered(const KernelSocket& listener, uint64_t netns, Traffic traffic,
                                FoundRegistry& registry) {
  const SocketKey key{.netns = netns, .cookie = marked(listener.cookie, traffic)};
  const Lookup found = look_up(listener.uid, key, &registry);
  if (found.outcome != Lookup::Outcome::kFound || found.entry.kind != Kind::kListener)
    return std::nullopt;
  if (found.entry.is_retired || found.entry.escaped.is_any()) return std::nullopt;
  return found.entry;
}

// Collects what a dump of the listeners says. A listener on the address itself takes precedence
// over one on the wildcard; one bound to a device may or may not get the connection.
struct ListenerCensus {
  const Address& server;
  uint64_t netns;
  Traffic traffic;
  bool is_any_exact_unbound = false, is_any_exact = false, is_any_wildcard = false;
  bool is_exact_unregistered = false, is_wildcard_unregistered = false;

  void count(const KernelSocket& s) {
    const bool is_exact = s.local.bytes == server.bytes;
    const bool is_wildcard = s.local.is_wildcard() &&
                             (server.is_v4() ? s.local.is_v4() || !s.is_v6_only : !s.local.is_v4());
    if (!is_exact && !is_wildcard) return;
    FoundRegistry unused;
    const bool is_missing = !registered(s, netns, traffic, unused);
    (is_exact ? is_any_exact : is_any_wildcard) = true;
    (is_exact ? is_exact_unregistered : is_wildcard_unregistered) |= is_missing;
    is_any_exact_unbound |= is_exact && !s.is_bound_to_device();
  }

  Listening verdict() const {
    const bool has_missing =
        is_exact_unregistered || (!is_any_exact_unbound && is_wildcard_unregistered);
    if (has_missing) return Listening::kUnregistered;
    return is_any_exact || is_any_wildcard ? Listening::kRegistered : Listening::kNone;
  }
};

Listening take_census(InetDiag& diag, const Address& server, Traffic traffic) {
  ListenerCensus census{.server = server, .netns = diag.netns(), .traffic = traffic};
  const auto count = [](void* context, const KernelSocket& s) {
    static_cast<ListenerCensus*>(context)->count(s);
  };
  if (!diag.visit_listeners(server, count, &census)) return Listening::kUnknown;
  return census.verdict();
}

Listening judge_listener(InetDiag& diag, const Address& server, Traffic traffic,
                         const Result<KernelSocket>& listener, FoundRegistry& registry) {
  if (!listener) return listener.error() == Errno{ENOENT} ? Listening::kNone : Listening::kUnknown;
  const auto entry = registered(*listener, diag.netns(), traffic, registry);
  if (!entry) return Listening::kUnregistered;
  if (!entry->is_alone) return take_census(diag, server, traffic);
  if (traffic == Traffic::kStream && !listener->is_bound_to_device())
    note_listener_met(server, {diag.netns(), listener->cookie, listener->uid});
  return Listening::kRegistered;
}

Listening judge_listening(InetDiag& diag, const Address& server, Traffic traffic,
                          FoundRegistry& registry) {
  return judge_listener(diag, server, traffic, diag.find_listener(server), registry);
}

// The cookie of one that took all connections to `server` a short while ago and takes new clients;
// 0: none is known.
uint64_t find_recent_listener(uint64_t netns, const Address& server, FoundRegistry& registry) {
  const auto met = listener_met_lately(server);
  if (!met || met->netns != netns) return 0;
  KernelSocket listener;
  listener.cookie = met->cookie;
  listener.uid = met->uid;
  const auto entry = registered(listener, netns, Traffic::kStream, registry);
  return entry && entry->is_alone ? met->cookie : 0;
}

// What stays the same for as long as the process does, below its generation.
using OfProcess = std::atomic<uint64_t>;

template <typename Ask>
uint32_t ask_once(OfProcess& known, Ask ask) {
  const uint64_t generation = base::process_init() ? base::process_generation() : 0;
  const uint64_t seen = known.load(std::memory_order_relaxed);
  if (generation != 0 && seen >> 32 == generation) return static_cast<uint32_t>(seen);
  const uint32_t answer = ask();
  known.store(generation << 32 | answer, std::memory_order_relaxed);
  return answer;
}

// Of a vfork child its parent's, for whom it lives.
uint32_t process_id() {
  static constinit OfProcess known{0};
  return ask_once(known, [] { return static_cast<uint32_t>(getpid()); });
}

// By what it is called on this host; 0: nobody knows.
uint32_t pid_namespace() {
  static constinit OfProcess known{0};
  return ask_once(known, [] {
    struct stat st;
    return base::kernel::stat("/proc/self/ns/pid", st) == 0 ? static_cast<uint32_t>(st.st_ino)
                                                            : uint32_t{0};
  });
}

// Carried where an unfinished entry has no address.
void put_pid_namespace(Entry& entry, uint32_t name) {
  std::memcpy(entry.remote.bytes.data(), &name, sizeof name);
}

// Of a process of another pid namespace nothing can be said.
bool is_process_dead(const Entry& entry) {
  uint32_t name;
  std::memcpy(&name, entry.remote.bytes.data(), sizeof name);
  if (name == 0 || name != pid_namespace()) return false;
  return base::kernel_call(SYS_kill, static_cast<pid_t>(entry.pid), 0) != 0 && errno == ESRCH;
}

bool is_unfinished_for_good(const Entry& entry) {
  const uint32_t age = boot_seconds() - entry.made_at;
  return age > kUnfinished || (age > kUnfinishedByDead && is_process_dead(entry));
}

struct CookieSearch {
  uint64_t cookie;
  bool is_found = false;
};

// What the entry at the other end's cookie says: whose word it repeats.
SocketKey repeated_in(const Entry& entry) {
  SocketKey client{.netns = entry.key.netns};
  std::memcpy(&client.cookie, entry.local.bytes.data(), sizeof client.cookie);
  return client;
}

struct Cleaning {
  const RegistryTable& registry;
  InetDiag diag{};
};

// Is the socket of an entry gone, or may it make room? What is not known is not gone.
bool is_entry_gone(void* context, const Entry& entry) {
  auto& [registry, diag] = *static_cast<Cleaning*>(context);
  if (entry.kind == Kind::kConnection && (entry.key.cookie & kOtherEnd) != 0)
    return !registry.find(repeated_in(entry));
  if (entry.key.netns != diag.netns())
    return entry.kind == Kind::kConnection && entry.local.port != 0 &&
           boot_seconds() - entry.made_at > kAcceptedByThen;
  if (entry.kind == Kind::kConnection) {
    if (entry.local.port == 0) return is_unfinished_for_good(entry);
    const auto found = diag.find_connection(entry.local, entry.remote);
    return found ? found->cookie != unmarked(entry.key.cookie) : found.error() == Errno{ENOENT};
  }
  if (!entry.has_listened && boot_seconds() - entry.made_at <= kListenSoon) return false;
  CookieSearch search{unmarked(entry.key.cookie)};
  const auto compare = [](void* to, const KernelSocket& s) {
    auto* wanted = static_cast<CookieSearch*>(to);
    wanted->is_found |= s.cookie == wanted->cookie;
  };
  return diag.visit_listeners(entry.local, compare, &search) && !search.is_found;
}

constexpr auto kNeverGone = [](void*, const Entry&) { return false; };

Publication publish(std::optional<uid_t> owner, Entry entry, const FoundRegistry& found = {}) {
  entry.pid = process_id();
  entry.made_at = boot_seconds();
  if (entry.kind == Kind::kConnection) put_pid_namespace(entry, pid_namespace());
  if (!owner || !is_valid(entry.key)) return Publication::kNoRegistry;
  const bool is_found = found.file != nullptr && found.owner == *owner;
  auto registry =
      is_found ? std::optional<RegistryTable>(*found.file) : own_registry(*owner, For::kPublishing);
  if (!registry) return Publication::kNoRegistry;
  if (registry->publish(entry, kNeverGone, nullptr)) return Publication::kDone;
  Cleaning cleaning{*registry};
  return registry->publish(entry, is_entry_gone, &cleaning) ? Publication::kDone
                                                            : Publication::kFull;
}

// Nobody else looks up what the overflow user says, as it may be another's word: who connects as
// that user is heard by a listener of its own only.
bool is_overflow_users(const Address& server) {
  InetDiag diag;
  const auto listener = diag.find_listener(destination(server));
  return listener && listener->uid == kOverflowUid;
}

void forget(int fd, Traffic traffic) {
  const auto owner = owner_of(fd);
  auto registry = owner ? mapped_registry(*owner) : std::nullopt;
  if (registry) registry->withdraw(key_of(fd, traffic));
}

// Of a client that doubts: who uses the entry up decides for both. That of another user cannot be
// used up, only looked at a little while longer, as accept waits for nobody.
// `near`: where this process has it mapped, as was found for this verdict.
Lookup look_up_decided(uid_t owner, const SocketKey& key, const FoundRegistry& near) {
  if (near.file != nullptr && near.owner == owner)
    if (const auto entry = RegistryTable(*near.file).find(key); entry && !entry->is_doubtful)
      return {Lookup::Outcome::kFound, *entry};
  Lookup found = look_up(owner, key);
  for (int i = 0; i < kMostDoubt && found.entry.is_doubtful; ++i) {
    auto registry = own_registry(owner);
    if (registry && registry->withdraw(key)) {
      found.entry.is_doubtful = false;
      return found;
    }
    found = look_up(owner, key);
  }
  if (found.entry.is_doubtful) return {Lookup::Outcome::kOutOfSight};
  return found;
}

// The thread may have changed namespace since the socket was made.
bool is_same_namespace(const InetDiag& diag, const SocketKey& key) {
  return is_valid(key) && diag.netns() == key.netns;
}

struct Peering {
  Address local, remote;
  Result<KernelSocket> find(InetDiag& diag) const { return diag.find_connection(remote, local); }
};

// The end that a client has connected to, and who listens there if that was asked.
struct ServerSide {
  Result<KernelSocket> end;
  std::optional<Result<KernelSocket>> listener{};
};

// Who listens there is asked in the same breath where that will matter.
ServerSide find_server_side(InetDiag& diag, const Peering& peering, const Inquiry& inquiry) {
  if (inquiry.listener == 0) return {peering.find(diag)};
  const auto [end, listener] = diag.find_end_and_listener(peering.remote, peering.local);
  return {end, listener};
}

// Will a process with the library have the connection to `server`? Waiting to be accepted, it is
// its listener's, and dies with it: if the listeners there are not registered now, somebody has
// taken the port over since, or the listener has gone to where the library is not. Accepted
// already, it was taken from the listeners that we asked about just before: nothing else had the
// time. Of one that we asked about earlier this is so if it is there still, for it was alone; no
// other can have listened beside it but on a device, which its connections would have from it.
// REQUIRES: the end was found.
bool is_in_good_hands(InetDiag& diag, const ServerSide& peer, const Address& server,
                      const Inquiry& inquiry) {
  const KernelSocket& end = *peer.end;
  if (end.has_inode && inquiry.listener == 0) return true;
  const auto listener = peer.listener ? *peer.listener : diag.find_listener(server);
  FoundRegistry unused;
  const Listening now = judge_listener(diag, server, Traffic::kStream, listener, unused);
  if (!end.has_inode) return now != Listening::kUnregistered;
  return now == Listening::kRegistered && listener->cookie == inquiry.listener &&
         !end.is_bound_to_device();
}

// Takes the word back, if nobody has used it: then the other end obeys it. A client that is in
// DDPMODE all the same says that it waits for the Reply.
Confirmation take_back(RegistryTable& registry, const SocketKey& key, const Peering& peering,
                       bool is_required) {
  if (!is_required)
    return registry.withdraw(key) ? Confirmation::kWithdrawn : Confirmation::kConfirmed;
  auto entry = registry.find(key);
  if (!entry) return Confirmation::kConfirmed;
  entry->awaits_reply = true;
  entry->local = peering.local;
  entry->remote = peering.remote;
  return registry.replace(*entry) ? Confirmation::kWithdrawn : Confirmation::kConfirmed;
}

}  // namespace

Listening find_listening(int fd, const Address& server, Traffic traffic) {
  InetDiag diag;
  if (!is_same_namespace(diag, key_of(fd))) return Listening::kUnknown;
  if (!is_here_and_routable(fd, server)) return Listening::kUnknown;
  FoundRegistry unused;
  return judge_listening(diag, destination(server), traffic, unused);
}

Inquiry begin_inquiry(int fd) {
  return {.key = key_of(fd), .owner = owner_of(fd)};
}

Listening find_listening(int fd, const Address& server, Inquiry& inquiry) {
  if (!is_valid(inquiry.key) || !is_here_and_routable(fd, server)) return Listening::kUnknown;
  const Address to = destination(server);
  inquiry.listener = find_recent_listener(inquiry.key.netns, to, inquiry.registry);
  if (inquiry.listener != 0) return Listening::kRegistered;
  InetDiag diag(inquiry.key.netns);
  if (!is_same_namespace(diag, inquiry.key)) return Listening::kUnknown;
  return judge_listening(diag, to, Traffic::kStream, inquiry.registry);
}

Publication publish_client(const Inquiry& client, const Address& server, bool wants_crc,
                           bool awaits_reply) {
  if (client.owner == kOverflowUid && !is_overflow_users(server)) return Publication::kNoRegistry;
  Entry entry;
  entry.key = client.key;
  entry.kind = Kind::kConnection;
  entry.awaits_reply = awaits_reply;
  entry.wants_crc = wants_crc;
  return publish(client.owner, entry, client.registry);
}

void forget_client(int fd) {
  forget(fd, Traffic::kStream);
}

// Who has accepted the connection and finds this need not ask who connected to it: said where the
// listener's user, who is this one, looks. A socket may connect again and keeps its cookie, so it
// says from which address as well. Where the client's word is used up already this is taken
// back; who uses it up later takes this back afterwards.
static void tell_other_end(const Inquiry& inquiry, const Address& from, uint64_t cookie) {
  const SocketKey& key = inquiry.key;
  if (inquiry.registry.file == nullptr || inquiry.registry.owner != inquiry.owner) return;
  RegistryTable registry(*inquiry.registry.file);
  Entry entry;
  entry.key = of_other_end(key.netns, cookie);
  entry.kind = Kind::kConnection;
  entry.made_at = boot_seconds();
  std::memcpy(entry.local.bytes.data(), &key.cookie, sizeof key.cookie);
  entry.remote = from;
  if (!registry.add(entry)) return;
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (!registry.find(key)) registry.withdraw(entry.key);
}

Confirmation confirm_client(int fd, const Inquiry& inquiry, bool is_required) {
  const SocketKey& key = inquiry.key;
  const auto ends = inquiry.ends ? inquiry.ends : ends_of(fd);
  const auto local = ends ? address_of(ends->local) : std::nullopt,
             remote = ends ? address_of(ends->peer) : std::nullopt;
  auto registry = inquiry.owner ? mapped_registry(*inquiry.owner) : std::nullopt;
  // Reset already: nothing will be sent either way, and nothing can be asked.
  if (!registry || !local || !remote) return Confirmation::kConfirmed;
  // Who has accepted it was faster.
  const auto is_used_up = [&] { return !registry->find(key); };
  if (is_used_up()) return Confirmation::kConfirmed;

  InetDiag diag(key.netns);
  const Peering peering{*local, *remote};
  const bool can_ask = is_same_namespace(diag, key);
  if (const auto peer = find_server_side(diag, peering, inquiry); can_ask && peer.end) {
    if (peer.end->has_inode && is_used_up()) return Confirmation::kConfirmed;
    if (is_in_good_hands(diag, peer, *remote, inquiry)) {
      registry->set_addresses(key, *local, *remote);
      tell_other_end(inquiry, *local, peer.end->cookie);
      return Confirmation::kConfirmed;
    }
  } else if (!can_ask || peer.end.error() != Errno{ENOENT}) {
    // Both ends on one address of this host is as good as an answer, if the listener is known.
    const bool is_here = remote->is_loopback() || local->bytes == remote->bytes;
    if (is_here && inquiry.listener == 0) return Confirmation::kConfirmed;
  }
  if (!ends_of(fd)) return Confirmation::kConfirmed;
  // An accepting process that looks now finds the doubt; one that looked before has its socket in
  // the table, and accepted, where the second look finds it.
  if (!registry->set_doubtful(key, true)) return Confirmation::kConfirmed;
  std::atomic_thread_fence(std::memory_order_seq_cst);
  const auto peer = find_server_side(diag, peering, inquiry);
  if (can_ask && peer.end && is_in_good_hands(diag, peer, *remote, inquiry)) {
    registry->set_doubtful(key, false);
    return Confirmation::kConfirmed;
  }
  return take_back(*registry, key, peering, is_required);
}

namespace {

std::optional<Entry> describe_listener(int fd, bool wants_crc) {
  const auto bound = local_address(fd);
  if (!bound) return std::nullopt;
  Entry entry;
  entry.kind = Kind::kListener;
  entry.wants_crc = wants_crc;
  entry.is_alone = int_option(fd, SO_REUSEPORT) == 0;
  entry.has_listened = int_option(fd, SO_ACCEPTCONN) != 0;
  entry.local = *bound;
  return entry;
}

std::optional<Entry> published_listener(int fd) {
  const auto owner = owner_of(fd);
  const SocketKey key = key_of(fd);
  if (!owner || !is_valid(key)) return std::nullopt;
  const Lookup found = look_up(*owner, key);
  if (found.outcome != Lookup::Outcome::kFound || found.entry.kind != Kind::kListener)
    return std::nullopt;
  return found.entry;
}

}  // namespace

void publish_listener(int fd, bool wants_crc, Traffic traffic) {
  if (auto entry = describe_listener(fd, wants_crc)) {
    entry->key = key_of(fd, traffic);
    publish(owner_of(fd), *entry);
  }
}

void note_listened(int fd) {
  const auto owner = owner_of(fd);
  auto registry = owner ? mapped_registry(*owner) : std::nullopt;
  if (registry) registry->set_listened(key_of(fd));
}

void adopt_listener(int fd, bool wants_crc) {
  if (is_listener_published(fd)) return;
  auto entry = describe_listener(fd, wants_crc);
  if (!entry) return;
  entry->is_adopted = true;
  entry->key = key_of(fd);
  publish(owner_of(fd), *entry);
}

void withdraw_listener(int fd, Traffic traffic) {
  const auto owner = owner_of(fd);
  auto registry = owner ? mapped_registry(*owner) : std::nullopt;
  if (!registry) return;
  const auto entry = registry->find(key_of(fd, traffic));
  if (!entry || entry->kind != Kind::kListener) return;
  Entry retired = *entry;
  retired.is_retired = true;
  registry->replace(retired);
}

bool is_listener_published(int fd) {
  return published_listener(fd).has_value();
}

void keep_registry_of(int fd) {
  if (const auto owner = owner_of(fd)) own_registry(*owner);
}

bool is_silence_proof(int listener) {
  const auto entry = published_listener(listener);
  return entry && !entry->is_adopted;
}

bool count_escaped(int fd, Escape how, int change) {
  const auto owner = owner_of(fd);
  auto registry = owner ? own_registry(*owner) : std::nullopt;
  if (!registry) registry = owner ? mapped_registry(*owner) : std::nullopt;
  if (!registry) return false;
  bool is_known = false;
  for (const Traffic traffic : {Traffic::kStream, Traffic::kMessages}) {
    is_known |= registry->count_escaped(key_of(fd, traffic), how, change);
  }
  return is_known;
}

namespace {

struct Registered {
  uid_t owner;
  uint64_t cookie;
};

}  // namespace

bool count_escaped_listeners_of(int fd, int change) {
  InetDiag diag;
  const auto local = local_address(fd);
  if (!local || !is_same_namespace(diag, key_of(fd))) return false;
  struct Accepted {
    const Address& local;
    const uint64_t netns;
    const int change;
    // As a dump that breaks off must not be counted in part. Beyond that: at once.
    std::array<Registered, 64> found = {};
    size_t size = 0;
    bool has_counted = false;

    void count(const Registered& listener) {
      auto registry = own_registry(listener.owner);
      has_counted |=
          registry && registry->count_escaped({netns, listener.cookie}, Escape::kGone, change);
    }
  } accepted{.local = *local, .netns = diag.netns(), .change = change};
  const auto note = [](void* context, const KernelSocket& s) {
    auto& from = *static_cast<Accepted*>(context);
    if (s.local.bytes != from.local.bytes && !s.local.is_wildcard()) return;
    const Registered listener{.owner = s.uid, .cookie = s.cookie};
    if (from.size == from.found.size()) return from.count(listener);
    from.found[from.size++] = listener;
  };
  if (diag.visit_listeners(*local, note, &accepted))
    for (size_t i = 0; i < accepted.size; ++i) accepted.count(accepted.found[i]);
  return accepted.has_counted;
}

namespace {

// The socket that connected to the accepted `fd`, if a process of this host holds it.
struct Connecting {
  uid_t owner;
  SocketKey key;
};
std::optional<Connecting> find_connecting(uint64_t netns, const std::optional<Ends>& ends,
                                          bool& lacks_descriptor) {
  const auto local = ends ? address_of(ends->local) : std::nullopt,
             remote = ends ? address_of(ends->peer) : std::nullopt;
  if (!local || !remote) return std::nullopt;
  InetDiag diag(netns);
  lacks_descriptor = diag.open_error() == EMFILE;
  if (netns == 0 || diag.netns() != netns) return std::nullopt;
  const auto client = Peering{*local, *remote}.find(diag);
  // A client that has closed already has said all it will: its bytes tell, and it waits for none.
  if (!client || !client->has_inode) return std::nullopt;
  return Connecting{client->uid, {.netns = netns, .cookie = client->cookie}};
}

Client say(const Entry& entry) {
  return entry.awaits_reply ? Client::kAwaiting : Client::kPublished;
}

// A client of this user's has said it already. Nobody else's word is looked for.
std::optional<Client> heard_from_client(Inquiry& inquiry) {
  const auto peer = inquiry.ends ? address_of(inquiry.ends->peer) : std::nullopt;
  if (!is_valid(inquiry.key)) return std::nullopt;
  inquiry.registry = current_registry(base::kernel::geteuid());
  if (inquiry.registry.file == nullptr) return std::nullopt;
  RegistryTable registry(*inquiry.registry.file);
  const SocketKey here = of_other_end(inquiry.key.netns, inquiry.key.cookie);
  const auto word = registry.find(here);
  if (!word) return std::nullopt;
  const auto client = word->remote == peer ? registry.find(repeated_in(*word)) : std::nullopt;
  const bool is_decided = client && client->kind == Kind::kConnection && !client->is_doubtful;
  // Its socket may have connected again since.
  const bool is_of_this = is_decided && client->local == peer;
  const bool is_mine = is_of_this && registry.withdraw(client->key);
  registry.withdraw(here);
  return is_mine ? std::optional(say(*client)) : std::nullopt;
}

Client ask_for_client(const Inquiry& inquiry, bool& lacks_descriptor) {
  const auto client = find_connecting(inquiry.key.netns, inquiry.ends, lacks_descriptor);
  if (!client) return Client::kUnknown;
  const Lookup found = look_up_decided(client->owner, client->key, inquiry.registry);
  if (found.outcome == Lookup::Outcome::kOutOfSight) return Client::kUnknown;
  if (found.outcome == Lookup::Outcome::kAbsent || found.entry.kind != Kind::kConnection)
    return Client::kUnpublished;
  if (auto registry = mapped_registry(client->owner)) {
    registry->withdraw(client->key);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    registry->withdraw(of_other_end(inquiry.key.netns, inquiry.key.cookie));
  }
  return say(found.entry);
}

struct ClientQuestion {
  const Inquiry& inquiry;
  bool lacks_descriptor = false;
  Client answer = Client::kUnknown;
};

}  // namespace

Client find_client(int fd, Inquiry& inquiry) {
  inquiry.key.cookie = socket_cookie(fd);
  if (inquiry.key.netns == 0) inquiry.key.netns = netns_cookie(fd);
  if (const auto heard = heard_from_client(inquiry)) return *heard;
  ClientQuestion question{inquiry};
  const auto ask = [](void* context) {
    auto& q = *static_cast<ClientQuestion*>(context);
    q.answer = ask_for_client(q.inquiry, q.lacks_descriptor);
  };
  ask(&question);
  // The client counts on an answer, and the accepted socket has taken the last descriptor.
  if (question.lacks_descriptor) with_spare_descriptor(fd, ask, &question);
  return question.answer;
}

SocketKey client_key(int fd) {
  return key_of(fd);
}

Publication publish_memory_client(int fd, int memory_fd) {
  Entry entry;
  entry.kind = Kind::kConnection;
  const auto number = static_cast<uint32_t>(memory_fd);
  std::memcpy(entry.local.bytes.data(), &number, sizeof number);
  entry.key = key_of(fd, Traffic::kMessages);
  return publish(owner_of(fd), entry);
}

void forget_memory_client(int fd) {
  forget(fd, Traffic::kMessages);
}

std::optional<MemoryClient> find_memory_client(int fd) {
  bool lacks_descriptor = false;  // without shared memory there is the wire
  const auto client = find_connecting(netns_cookie(fd), ends_of(fd), lacks_descriptor);
  if (!client) return std::nullopt;
  const SocketKey key{client->key.netns, marked(client->key.cookie, Traffic::kMessages)};
  const Lookup found = look_up(client->owner, key);
  if (found.outcome != Lookup::Outcome::kFound || found.entry.kind != Kind::kConnection)
    return std::nullopt;
  if (auto registry = mapped_registry(client->owner)) registry->withdraw(key);
  MemoryClient named{.pid = found.entry.pid, .memory_fd = 0, .socket = client->key};
  std::memcpy(&named.memory_fd, found.entry.local.bytes.data(), sizeof named.memory_fd);
  return named;
}

}  // namespace ddpsock::shim
