#include "gpu/inference/generate.hpp"

#include <algorithm>

#include "gpu/device/clock.hpp"
#include "gpu/inference/completion_room.hpp"
#include "gpu/inference/sampling.hpp"

namespace troupe::gpu {

namespace {

constexpr sequence_id only_sequence = 1;

/// One sequence on one device, without a queue: the reference for the batch, whose tokens must be
/// the same to the last bit. Each token is chosen from the logits of the position before it.
class generator {
 public:
  generator(inference_device& d, const generation& g)
      : device_{d}, how_{g}, repeated_{prompt_for_penalty(g.what.how, g.prompt)} {}
  ~generator() { device_.release(only_sequence); }
  generator(const generator&) = delete;
  generator& operator=(const generator&) = delete;

  expected<generated> run(completion& out, const std::function<void(std::string_view)>& received) {
    const auto begin = now_s();
    auto ok = check_room();
    if (ok) ok = prefill();
    if (!ok) return refuse(ok.error());
    while (out.finished() == completion::finish::none) {
      const auto position = how_.prompt.size() + out.tokens().size();
      if (ok = check_logits(logits_, position); !ok) return refuse(ok.error());
      const auto text = out.add(sample(logits_, rule_of(how_.what, out.tokens().size()), position,
                                       out.tokens(), repeated_));
      if (out.tokens().size() == 1) made_.ttft_s = now_s() - begin;
      if (received && !text.empty()) received(text);
      if (out.finished() != completion::finish::none) break;
      if (ok = decode(out.tokens().back(), static_cast<std::uint32_t>(position)); !ok)
        return refuse(ok.error());
    }
    return std::move(made_);
  }

 private:
  expected<void> check_room() const {
    const auto& m = device_.spec().model;
    const completion_room room{m.name, m.positions, m.vocabulary, device_.free_pages()};
    return check(how_.what, how_.prompt, room);
  }

  // Chunks bound the memory of activations. Only the last position's logits are needed, unless all
  // are kept.
  expected<void> prefill() {
    const auto width = device_.spec().model.hidden * sizeof(float);
    for (std::size_t first = 0; first < how_.prompt.size(); first += how_.chunk) {
      const auto n = std::min<std::size_t>(how_.chunk, how_.prompt.size() - first);
      if (auto ok = device_.reserve(only_sequence, static_cast<std::uint32_t>(first + n)); !ok)
        return ok;
      const auto work = device_.prefill(
          only_sequence, static_cast<std::uint32_t>(first),
          payload{nullptr, std::as_bytes(std::span{how_.prompt}.subspan(first, n))}, how_.adapter);
      if (!work) return refuse(work.error());
      made_.steps += (*work)->steps_left();
      ++made_.chunks;
      const auto hidden = finish(**work);
      const bool last = first + n == how_.prompt.size();
      const auto from = how_.keep_logits ? 0 : n - 1;
      if (!last && !how_.keep_logits) continue;
      if (auto ok = predict({hidden.owner(), hidden.bytes().subspan(from * width)}); !ok) return ok;
    }
    return {};
  }

  expected<void> decode(std::uint32_t token, std::uint32_t position) {
    if (auto ok = device_.reserve(only_sequence, position + 1); !ok) return ok;
    const auto work = device_.decode({{only_sequence, position, token, how_.adapter}}, {});
    if (!work) return refuse(work.error());
    return predict(finish(**work));
  }

  /// Sets logits_ from the last of these hidden states.
  expected<void> predict(const payload& hidden) {
    const auto work = device_.head(hidden);
    if (!work) return refuse(work.error());
    rows_ = finish(**work);
    const auto all = float_values(rows_);
    logits_ = all.last(device_.spec().model.vocabulary);
    if (how_.keep_logits) made_.logits.insert(made_.logits.end(), all.begin(), all.end());
    return {};
  }

  inference_device& device_;
  const generation& how_;
  const std::vector<std::uint32_t> repeated_;
  generated made_;
  payload rows_;
  std::span<const float> logits_;  // in rows_
};

}  // namespace

expected<generated> generate(inference_device& d, const generation& g, completion& out,
                             const std::function<void(std::string_view)>& received) {
  return generator{d, g}.run(out, received);
}

}  // namespace troupe::gpu
