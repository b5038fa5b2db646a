// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// An engine around an engine that changes nothing: what the wrappers derive from. Each object holds
// the one it stands for, so that observing or disturbing an engine costs the engine nothing.
#ifndef DDPSOCK_ENGINE_WRAP_WRAP_H_
#define DDPSOCK_ENGINE_WRAP_WRAP_H_

#include <array>
#include <cstdio>
#include <memory>
#include <utility>

#include "engine/engine.h"

namespace ddpsock::engine::wrap {

class WrapCq : public Cq {
 public:
  explicit WrapCq(std::unique_ptr<Cq> inner) : inner_(std::move(inner)) {}
  uint32_t poll(std::span<Completion> out) override { return inner_->poll(out); }
  bool has_any() const override { return inner_->has_any(); }
  void arm(Arm what) override { inner_->arm(what); }
  Cq& inner() { return *inner_; }

 private:
  std::unique_ptr<Cq> inner_;
};

class WrapSrq : public Srq {
 public:
  explicit WrapSrq(std::unique_ptr<Srq> inner) : inner_(std::move(inner)) {}
  Posted recv(std::span<const RecvWr> work) override { return inner_->recv(work); }
  void set_limit(uint32_t level) override { inner_->set_limit(level); }
  void close() override { inner_->close(); }
  Srq& inner() { return *inner_; }

 private:
  std::unique_ptr<Srq> inner_;
};

class WrapQp : public Qp {
 public:
  explicit WrapQp(std::unique_ptr<Qp> inner) : inner_(std::move(inner)) {}
  uint32_t number() const override { return inner_->number(); }
  Status<StartError> start(const Start& start) override { return inner_->start(start); }
  Posted send(std::span<const SendWr> work) override { return inner_->send(work); }
  Posted recv(std::span<const RecvWr> work) override { return inner_->recv(work); }
  Need advance(Time now, Budget budget) override { return inner_->advance(now, budget); }
  bool has_news() const override { return inner_->has_news(); }
  void drain() override { inner_->drain(); }
  void abort(std::optional<TermCode> why) override { inner_->abort(why); }
  // Nothing passes by the wrapper: what would go directly goes the usual way.
  Capabilities capabilities() const override {
    return inner_->capabilities().without(Capability::kDirect);
  }
  QpState state() const override { return inner_->state(); }
  TerminateInfo terminate_info() const override { return inner_->terminate_info(); }

 protected:
  Qp& inner() { return *inner_; }

 private:
  std::unique_ptr<Qp> inner_;
};

class WrapEngine : public Engine {
 public:
  // `what`: the wrapper's name. REQUIRES: inner.
  WrapEngine(const char* what, std::unique_ptr<Engine> inner) : inner_(std::move(inner)) {
    std::snprintf(name_.data(), name_.size(), "%.16s(%.64s)", what, inner_->name());
  }

  const char* name() const override { return name_.data(); }
  Capabilities capabilities() const override { return inner_->capabilities(); }
  const Limits& limits() const override { return inner_->limits(); }
  Result<Pd, SetupError> open_pd() override { return inner_->open_pd(); }
  Status<SetupError> close_pd(Pd pd) override { return inner_->close_pd(pd); }
  Result<Mr, RegisterError> register_memory(const MemoryDesc& desc) override {
    return inner_->register_memory(desc);
  }
  Status<DeregisterError> deregister(const Mr& mr) override { return inner_->deregister(mr); }

  Result<std::unique_ptr<Cq>, SetupError> make_cq(const CqAttr& attr) override {
    return wrapped(inner_->make_cq(attr), [this](auto cq) { return wrap_cq(std::move(cq)); });
  }
  Result<std::unique_ptr<Srq>, SetupError> make_srq(const SrqAttr& attr) override {
    SrqAttr bare = attr;
    if (attr.cq != nullptr) bare.cq = &static_cast<WrapCq*>(attr.cq)->inner();
    return wrapped(inner_->make_srq(bare), [this](auto srq) { return wrap_srq(std::move(srq)); });
  }
  Result<std::unique_ptr<Qp>, SetupError> make_qp(const QpAttr& attr) override {
    QpAttr bare = attr;
    if (attr.send_cq != nullptr) bare.send_cq = &static_cast<WrapCq*>(attr.send_cq)->inner();
    if (attr.recv_cq != nullptr) bare.recv_cq = &static_cast<WrapCq*>(attr.recv_cq)->inner();
    if (attr.srq != nullptr) bare.srq = &static_cast<WrapSrq*>(attr.srq)->inner();
    return wrapped(inner_->make_qp(bare), [this](auto qp) { return wrap_qp(std::move(qp)); });
  }

 protected:
  virtual std::unique_ptr<WrapCq> wrap_cq(std::unique_ptr<Cq> cq) {
    return std::unique_ptr<WrapCq>(new (std::nothrow) WrapCq(std::move(cq)));
  }
  virtual std::unique_ptr<WrapSrq> wrap_srq(std::unique_ptr<Srq> srq) {
    return std::unique_ptr<WrapSrq>(new (std::nothrow) WrapSrq(std::move(srq)));
  }
  virtual std::unique_ptr<WrapQp> wrap_qp(std::unique_ptr<Qp> qp) {
    return std::unique_ptr<WrapQp>(new (std::nothrow) WrapQp(std::move(qp)));
  }

 private:
  template <typename T, typename Wrap>
  static Result<std::unique_ptr<T>, SetupError> wrapped(Result<std::unique_ptr<T>, SetupError> made,
                                                        const Wrap& wrap) {
    if (!made) return made;
    std::unique_ptr<T> outer = wrap(std::move(*made));
    if (!outer) return fail(SetupError::kNoMemory);
    return outer;
  }

  std::unique_ptr<Engine> inner_;
  std::array<char, 96> name_;
};

}  // namespace ddpsock::engine::wrap

#endif  // DDPSOCK_ENGINE_WRAP_WRAP_H_
