#include "gpu/pipeline.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <future>

#include "gpu/model/parameters.hpp"
#include "messages/base/random.hpp"

namespace troupe::test {

using gpu::operation;
namespace step = gpu::operations;

namespace {

expected<gpu::outcome> wait_for(gpu::stage_device& d, operation o) {
  std::promise<expected<gpu::outcome>> promise;
  auto result = promise.get_future();
  d.submit(std::move(o), [&](expected<gpu::outcome> r) { promise.set_value(std::move(r)); });
  return result.get();
}

payload sum_of(const payload& a, const payload& b) {
  const auto x = floats(a), y = floats(b);
  REQUIRE(x.size() == y.size());
  std::vector<std::byte> bytes(x.size() * sizeof(float));
  for (std::size_t i = 0; i < x.size(); ++i) {
    const float sum = x[i] + y[i];
    std::memcpy(bytes.data() + i * sizeof(float), &sum, sizeof(float));
  }
  return payload{std::move(bytes)};
}

}  // namespace

model small_model(bool tied) {
  model m;
  m.name = "small";
  m.hidden = 24;
  m.layers = 6;
  m.heads = 3;
  m.sequence = 20;
  m.vocabulary = 37;
  m.tied_head = tied;
  return m;
}

gpu::stage_spec whole_model(const model& m, std::uint32_t rows) {
  gpu::stage_spec s;
  s.model = m;
  s.sublayers = 2 * m.layers;
  s.has_embedding = s.has_head = true;
  s.rows = rows;
  return s;
}

gpu::outcome run(gpu::stage_device& d, operation o) {
  auto r = wait_for(d, std::move(o));
  if (!r) FAIL(r.error().text);
  return std::move(*r);
}

std::string refusal(gpu::stage_device& d, operation o) {
  const auto r = wait_for(d, std::move(o));
  return r ? "" : r.error().text;
}

std::vector<float> floats(const payload& p) {
  std::vector<float> values(p.bytes().size() / sizeof(float));
  if (!values.empty()) std::memcpy(values.data(), p.bytes().data(), p.bytes().size());
  return values;
}

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  REQUIRE(a.size() == b.size());
  double norm = 0, difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double x = static_cast<double>(a[i]), y = static_cast<double>(b[i]);
    norm += x * x;
    difference += (x - y) * (x - y);
  }
  return norm > 0 ? std::sqrt(difference / norm) : std::sqrt(difference);
}

payload tokens(const std::vector<std::uint32_t>& t) {
  const auto bytes = std::as_bytes(std::span{t});
  return payload{std::vector<std::byte>{bytes.begin(), bytes.end()}};
}

std::vector<lesson> lessons(const model& m, std::uint32_t rows, std::size_t microbatches,
                            std::uint64_t seed) {
  random_source random{seed};
  std::vector<lesson> all;
  for (std::size_t i = 0; i < microbatches; ++i) {
    std::vector<std::uint32_t> in(rows * m.sequence), out(in.size());
    for (auto& t : in) t = static_cast<std::uint32_t>(random.below(m.vocabulary));
    for (auto& t : out) t = static_cast<std::uint32_t>(random.below(m.vocabulary));
    all.push_back({tokens(in), tokens(out)});
  }
  return all;
}

pipeline::pipeline(const tested_device& kind, model m, std::vector<std::uint32_t> sublayers,
                   options how)
    : how_{how} {
  std::uint32_t first = 0;
  for (std::size_t i = 0; i < sublayers.size(); ++i) {
    gpu::stage_spec s;
    s.model = m;
    s.first_sublayer = first;
    s.sublayers = sublayers[i];
    s.has_embedding = i == 0;
    s.has_head = i + 1 == sublayers.size();
    s.rows = how.rows;
    s.learning_rate = how.learning_rate;
    first += sublayers[i];
    auto d = kind.make(s);
    if (!d) FAIL(d.error().text);
    specs.push_back(s);
    stages_.push_back(std::move(*d));
  }
}

double pipeline::forward(std::uint32_t microbatch, const lesson& l) {
  payload passed = l.input;
  double loss = 0;
  for (std::size_t i = 0; i < stages_.size(); ++i) {
    const auto done = run(*stages_[i], step::forward{microbatch, how_.keep, passed,
                                                     specs[i].has_head ? l.targets : payload{}});
    loss = done.loss;
    passed = done.activation;
  }
  return loss;
}

void pipeline::backward(std::uint32_t microbatch) {
  payload passed;
  for (auto i = stages_.size(); i-- > 0;) {
    if (!how_.keep) run(*stages_[i], step::recompute{microbatch});
    passed = run(*stages_[i], step::backward{microbatch, passed}).gradient;
  }
  REQUIRE(passed.empty());
}

pipeline::iteration pipeline::learn(const std::vector<lesson>& all) {
  iteration done;
  for (std::uint32_t m = 0; m < all.size(); ++m) {
    done.losses.push_back(forward(m, all[m]));
    if (how_.keep) backward(m);
  }
  for (std::uint32_t m = 0; !how_.keep && m < all.size(); ++m) backward(m);
  std::vector<gpu::own_and_tied> sums;
  for (auto& s : stages_) sums.push_back(run(*s, step::gradients{}));
  auto tied = sums.front().tied;
  if (stages_.size() > 1 && !tied.empty()) tied = sum_of(tied, sums.back().tied);
  done.tied = floats(tied);
  const bool apart = stages_.size() > 1 && !tied.empty();
  for (std::size_t i = 0; i < stages_.size(); ++i) {
    step::update u{.scale = 1.0 / static_cast<double>(all.size())};
    if (apart)
      u.sums = {sums[i].own, specs[i].has_embedding || specs[i].has_head ? tied : payload{}};
    done.squared_norm += run(*stages_[i], std::move(u)).squared_norm;
    done.own.push_back(floats(sums[i].own));
  }
  return done;
}

std::vector<float> pipeline::weights() {
  std::vector<float> all, tied;
  for (auto& s : stages_) {
    const auto out = run(*s, step::weights{});
    const auto own = floats(out.own), shared = floats(out.tied);
    all.insert(all.end(), own.begin(), own.end());
    if (shared.empty()) continue;
    if (!tied.empty()) REQUIRE(tied == shared);  // both copies of it went the same way
    tied = shared;
  }
  all.insert(all.end(), tied.begin(), tied.end());
  return all;
}

void pipeline::save(const std::string& directory) {
  for (auto& s : stages_) run(*s, step::save{directory});
}

std::string pipeline::refused_save(const std::string& directory) {
  return refusal(*stages_.front(), {step::save{directory}});
}

void pipeline::load(const std::string& directory) {
  for (auto& s : stages_) run(*s, step::load{directory});
}

void check_near(const pipeline::iteration& a, const pipeline::iteration& b, double gradients_off,
                double losses_off) {
  for (std::size_t i = 0; i < a.losses.size(); ++i)
    CHECK(b.losses[i] == Approx(a.losses[i]).epsilon(losses_off));
  for (std::size_t i = 0; i < a.own.size(); ++i)
    CHECK(distance(a.own[i], b.own[i]) <= gradients_off);
  CHECK(distance(a.tied, b.tied) <= gradients_off);
  CHECK(b.squared_norm == Approx(a.squared_norm).epsilon(2 * gradients_off));
}

}  // namespace troupe::test
