// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <rdma/rdma_cma.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "tests/interop/siw/peer.h"

namespace ddpsock::interop {
namespace {

void set_nonblocking(int fd) {
  EXPECT_EQ(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
}

int access_flags(Access access) {
  int flags = IBV_ACCESS_LOCAL_WRITE;
  if (access == Access::kRemoteRead || access == Access::kRemoteBoth)
    flags |= IBV_ACCESS_REMOTE_READ;
  if (access == Access::kRemoteWrite || access == Access::kRemoteBoth)
    flags |= IBV_ACCESS_REMOTE_WRITE;
  return flags;
}

// Through librdmacm and libibverbs: the kernel's siw is the only RDMA device of the guest.
class Siw final : public Peer {
 public:
  Siw(const Profile&, const std::string& address, uint16_t port) {
    address_.sin_family = AF_INET;
    address_.sin_port = htons(port);
    EXPECT_EQ(inet_pton(AF_INET, address.c_str(), &address_.sin_addr), 1);
    int count = 0;
    ibv_context** const devices = rdma_get_devices(&count);
    EXPECT_GE(count, 1) << "no RDMA device";
    device_ = devices[0];
    rdma_free_devices(devices);
    set_nonblocking(device_->async_fd);
    cm_ = rdma_create_event_channel();
    set_nonblocking(cm_->fd);
    comp_ = ibv_create_comp_channel(device_);
    set_nonblocking(comp_->fd);
    pd_ = ibv_alloc_pd(device_);
    cq_ = ibv_create_cq(device_, 2 * kDepth, nullptr, comp_, 0);
    EXPECT_TRUE(pd_ != nullptr && cq_ != nullptr);
  }

  // The process ends with its scenario, and the kernel tidies up; but what outlives the connection
  // must not keep it.
  ~Siw() override {
    if (id_ != nullptr) {
      if (id_->qp != nullptr) rdma_destroy_qp(id_);
      rdma_destroy_id(id_);
    }
    if (listener_ != nullptr) rdma_destroy_id(listener_);
    for (ibv_mr* mr : mrs_) ibv_dereg_mr(mr);
    ibv_destroy_cq(cq_);
    ibv_dealloc_pd(pd_);
    ibv_destroy_comp_channel(comp_);
    rdma_destroy_event_channel(cm_);
  }

  bool is_ours() const override { return false; }

  Region expose(size_t size, Access access) override {
    memory_.push_back(std::make_unique<uint8_t[]>(size));
    const MutBytes memory(memory_.back().get(), size);
    ibv_mr* const mr = ibv_reg_mr(pd_, memory.data(), size, access_flags(access));
    EXPECT_NE(mr, nullptr) << std::strerror(errno);
    mrs_.push_back(mr);
    return {.stag = mr->rkey, .to = reinterpret_cast<uint64_t>(memory.data()), .memory = memory};
  }

  void post_receive(uint64_t id, MutBytes part) override {
    if (id_ == nullptr || id_->qp == nullptr) {
      early_.push_back({id, part});
      return;
    }
    ibv_sge sge = sge_of(part);
    ibv_recv_wr wr{};
    wr.wr_id = id;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    ibv_recv_wr* bad = nullptr;
    EXPECT_EQ(ibv_post_recv(id_->qp, &wr, &bad), 0);
    ++outstanding_;
  }

  Outcome connect(const Hello& mine) override {
    EXPECT_EQ(rdma_create_id(cm_, &id_, nullptr, RDMA_PS_TCP), 0);
    constexpr int kMs = 5'000;
    EXPECT_EQ(rdma_resolve_addr(id_, nullptr, reinterpret_cast<sockaddr*>(&address_), kMs), 0);
    if (await(RDMA_CM_EVENT_ADDR_RESOLVED).kind != Outcome::Kind::kConnected)
      return {.text = "no address"};
    EXPECT_EQ(rdma_resolve_route(id_, kMs), 0);
    if (await(RDMA_CM_EVENT_ROUTE_RESOLVED).kind != Outcome::Kind::kConnected)
      return {.text = "no route"};
    make_qp();
    rdma_conn_param param = param_of(mine);
    EXPECT_EQ(rdma_connect(id_, &param), 0) << std::strerror(errno);
    return await(RDMA_CM_EVENT_ESTABLISHED);
  }

  void listen() override {
    ASSERT_EQ(rdma_create_id(cm_, &listener_, nullptr, RDMA_PS_TCP), 0);
    ASSERT_EQ(rdma_bind_addr(listener_, reinterpret_cast<sockaddr*>(&address_)), 0);
    ASSERT_EQ(rdma_listen(listener_, 16), 0);
  }

  Outcome wait_for_request() override {
    Outcome o = await(RDMA_CM_EVENT_CONNECT_REQUEST);
    if (o.kind == Outcome::Kind::kConnected) o.kind = Outcome::Kind::kRequested;
    return o;
  }

  Outcome accept(const Hello& mine, const std::function<void()>& on_answered) override {
    make_qp();
    rdma_conn_param param = param_of(mine);
    EXPECT_EQ(rdma_accept(id_, &param), 0) << std::strerror(errno);
    on_answered();
    Outcome o = await(RDMA_CM_EVENT_ESTABLISHED);
    o.ird = mine.ird;
    o.ord = mine.ord;
    return o;
  }

  bool reject(const std::vector<uint8_t>& private_data) override {
    return rdma_reject(id_, private_data.data(), static_cast<uint8_t>(private_data.size())) == 0;
  }

  void send(uint64_t id, Bytes payload, const SendOptions& options) override {
    ibv_send_wr wr{};
    wr.opcode = options.invalidate ? IBV_WR_SEND_WITH_INV : IBV_WR_SEND;
    if (options.invalidate) wr.invalidate_rkey = *options.invalidate;
    if (options.is_solicited) wr.send_flags |= IBV_SEND_SOLICITED;
    post(id, payload, wr);
  }
  void write(uint64_t id, Bytes payload, uint32_t stag, uint64_t to) override {
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.wr.rdma = {.remote_addr = to, .rkey = stag};
    post(id, payload, wr);
  }
  void read(uint64_t id, MutBytes sink, uint32_t stag, uint64_t to) override {
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_RDMA_READ;
    wr.wr.rdma = {.remote_addr = to, .rkey = stag};
    post(id, sink, wr);
  }

  Event next(Duration within) override {
    const Time deadline = base::now() + within;
    for (;;) {
      if (const auto e = poll_cq()) return *e;
      look_for_the_end();
      if (has_ended_ && outstanding_ == 0) return {.kind = Event::Kind::kEnded};
      if (base::now() >= deadline) return {.kind = Event::Kind::kTimedOut};
      EXPECT_EQ(ibv_req_notify_cq(cq_, 0), 0);
      if (const auto e = poll_cq()) return *e;
      sleep_until(deadline);
      ibv_cq* signalled = nullptr;
      void* context = nullptr;
      if (ibv_get_cq_event(comp_, &signalled, &context) == 0) ibv_ack_cq_events(cq_, 1);
    }
  }

  void finish() override {
    // A disconnect flushes what is queued: it is the verbs program's to wait for its completions
    // first.
    EXPECT_EQ(rdma_disconnect(id_), 0);
  }

  std::optional<rdmap::TermCode> terminate() const override { return std::nullopt; }

 private:
  struct Early {
    uint64_t id;
    MutBytes part;
  };

  static rdma_conn_param param_of(const Hello& mine) {
    rdma_conn_param param{};
    param.private_data = mine.private_data.data();
    param.private_data_len = static_cast<uint8_t>(mine.private_data.size());
    param.responder_resources = static_cast<uint8_t>(mine.ird);
    param.initiator_depth = static_cast<uint8_t>(mine.ord);
    return param;
  }

  void make_qp() {
    ibv_qp_init_attr attr{};
    attr.send_cq = cq_;
    attr.recv_cq = cq_;
    attr.qp_type = IBV_QPT_RC;
    attr.cap = {.max_send_wr = kDepth,
                .max_recv_wr = kDepth,
                .max_send_sge = 1,
                .max_recv_sge = 1,
                .max_inline_data = 0};
    ASSERT_EQ(rdma_create_qp(id_, pd_, &attr), 0) << std::strerror(errno);
    for (const Early& e : early_) post_receive(e.id, e.part);
    early_.clear();
  }

  ibv_sge sge_of(Bytes part) const {
    const auto address = reinterpret_cast<uint64_t>(part.data());
    for (const ibv_mr* mr : mrs_) {
      const auto base = reinterpret_cast<uint64_t>(mr->addr);
      if (address >= base && address <= base + mr->length) {
        return {.addr = address, .length = static_cast<uint32_t>(part.size()), .lkey = mr->lkey};
      }
    }
    ADD_FAILURE() << "not in exposed memory";
    return {};
  }

  void post(uint64_t id, Bytes part, ibv_send_wr& wr) {
    ibv_sge sge = sge_of(part);
    wr.wr_id = id;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.send_flags |= IBV_SEND_SIGNALED;
    ibv_send_wr* bad = nullptr;
    EXPECT_EQ(ibv_post_send(id_->qp, &wr, &bad), 0);
    ++outstanding_;
  }

  // kConnected: it came.
  Outcome await(rdma_cm_event_type wanted) {
    const Time deadline = base::now() + kPatience;
    for (;;) {
      rdma_cm_event* event = nullptr;
      if (rdma_get_cm_event(cm_, &event) == 0) {
        const Outcome o = take(*event, wanted);
        rdma_ack_cm_event(event);
        return o;
      }
      if (base::now() >= deadline) return {.text = "no event"};
      sleep_until(deadline);
    }
  }

  Outcome take(const rdma_cm_event& event, rdma_cm_event_type wanted) {
    Outcome o{.text = rdma_event_str(event.event)};
    const auto* const data = static_cast<const uint8_t*>(event.param.conn.private_data);
    if (data != nullptr) o.private_data.assign(data, data + event.param.conn.private_data_len);
    o.ird = event.param.conn.responder_resources;
    o.ord = event.param.conn.initiator_depth;
    if (event.event == RDMA_CM_EVENT_REJECTED) o.kind = Outcome::Kind::kRejected;
    if (event.event != wanted) return o;
    o.kind = Outcome::Kind::kConnected;
    if (wanted == RDMA_CM_EVENT_CONNECT_REQUEST) id_ = event.id;
    return o;
  }

  void look_for_the_end() {
    rdma_cm_event* event = nullptr;
    if (rdma_get_cm_event(cm_, &event) == 0) {
      const bool is_end =
          event->event == RDMA_CM_EVENT_DISCONNECTED || event->event == RDMA_CM_EVENT_TIMEWAIT_EXIT;
      rdma_ack_cm_event(event);
      if (is_end && !has_ended_) {
        has_ended_ = true;
        rdma_disconnect(id_);
      }
    }
    ibv_async_event async;
    if (ibv_get_async_event(device_, &async) == 0) ibv_ack_async_event(&async);
  }

  std::optional<Event> poll_cq() {
    ibv_wc wc{};
    if (ibv_poll_cq(cq_, 1, &wc) != 1) return std::nullopt;
    --outstanding_;
    Event e{.id = wc.wr_id, .is_ok = wc.status == IBV_WC_SUCCESS};
    // A failed completion tells nothing but its id and status.
    if (!e.is_ok) {
      e.kind = Event::Kind::kSent;
      return e;
    }
    switch (wc.opcode) {
      case IBV_WC_RECV:
        e.kind = Event::Kind::kReceived;
        e.length = wc.byte_len;
        if ((wc.wc_flags & IBV_WC_WITH_INV) != 0) e.invalidated = wc.invalidated_rkey;
        break;
      case IBV_WC_RDMA_WRITE:
        e.kind = Event::Kind::kWritten;
        break;
      case IBV_WC_RDMA_READ:
        e.kind = Event::Kind::kRead;
        break;
      default:
        e.kind = Event::Kind::kSent;
    }
    return e;
  }

  void sleep_until(Time deadline) {
    std::array<pollfd, 3> fds{
        {{cm_->fd, POLLIN, 0}, {comp_->fd, POLLIN, 0}, {device_->async_fd, POLLIN, 0}}};
    ::poll(fds.data(), fds.size(), static_cast<int>((deadline - base::now()).ceil_ms()));
  }

  sockaddr_in address_{};
  ibv_context* device_ = nullptr;
  rdma_event_channel* cm_ = nullptr;
  ibv_comp_channel* comp_ = nullptr;
  ibv_pd* pd_ = nullptr;
  ibv_cq* cq_ = nullptr;
  rdma_cm_id* listener_ = nullptr;
  rdma_cm_id* id_ = nullptr;
  std::vector<std::unique_ptr<uint8_t[]>> memory_;
  std::vector<ibv_mr*> mrs_;
  std::vector<Early> early_;
  uint32_t outstanding_ = 0;
  bool has_ended_ = false;
};

}  // namespace

std::unique_ptr<Peer> make_siw(const Profile& profile, const std::string& address, uint16_t port) {
  return std::make_unique<Siw>(profile, address, port);
}

}  // namespace ddpsock::interop
