#include "gpu/inference/service.hpp"

#include <algorithm>

namespace troupe::test {

namespace {

using namespace gpu;

constexpr sequence_id ours = 7, intruder = 99;
constexpr std::uint32_t pages = 128;

template <class T>
payload payload_of(const std::vector<T>& values) {
  return payload{values};
}

std::vector<float> floats_of(const payload& p) {
  const auto* first = reinterpret_cast<const float*>(p.bytes().data());
  return {first, first + p.bytes().size() / sizeof(float)};
}

std::vector<float> row(const std::vector<float>& all, std::size_t i, std::size_t width) {
  const auto begin = all.begin() + static_cast<std::ptrdiff_t>(i * width);
  return {begin, begin + static_cast<std::ptrdiff_t>(width)};
}

}  // namespace

service::service(const std::filesystem::path& folder)
    : folder_{folder}, model_{loaded(read_inference_model(folder))} {}

inference_device& service::device(std::uint32_t first, std::uint32_t end) {
  auto& d = devices_[{first, end}];
  if (!d) {
    inference_spec s = whole_model(model_, pages);
    s.weights = folder_;
    s.first_sublayer = first;
    s.sublayers = end - first;
    s.embeds = first == 0;
    s.predicts = first == 0 && end == 2 * model_.layers;
    d = loaded(make_cpu_inference_device(s));
  }
  return *d;
}

/// Cuts that are not at a layer's end, too.
std::vector<inference_device*> service::parts(std::uint32_t count) {
  std::vector<inference_device*> all;
  for (std::uint32_t i = 0, all_of = 2 * model_.layers, begin = 0; i < count; ++i) {
    auto end = (i + 1) * all_of / count;
    if (i == 0 && count > 1) ++end;
    all.push_back(&device(begin, end));
    begin = end;
  }
  return all;
}

/// A step of the prefill of another prompt, again and again.
void service::intrude(inference_device& d) {
  auto& work = intruders_[&d];
  if (!work || work->steps_left() == 0) {
    const std::size_t tokens = 70;
    CHECK(d.reserve(intruder, tokens));
    const auto in = d.spec().embeds ? payload_of(random_prompt(tokens, model_.vocabulary, 5))
                                    : payload_of(std::vector<float>(tokens * model_.hidden, 0.5f));
    work = loaded(d.prefill(intruder, 0, in));
  }
  work->step();
}

payload service::finish(inference_device& d, inference_work& w, bool suspended) {
  while (w.steps_left() > 0) {
    w.step();
    if (suspended) intrude(d);
  }
  return w.result();
}

void service::send_kv(inference_device& from, inference_device& to, sequence_id s,
                      std::uint32_t positions) {
  const auto first = (from.spec().first_sublayer + 1) / 2;
  const auto end = (from.spec().first_sublayer + from.spec().sublayers + 1) / 2;
  // One block for all full pages, one for the last: any division must do.
  const auto full = positions / tile_positions, all = pages_for(positions);
  for (const auto& [begin, count] : {std::pair{0u, full}, std::pair{full, all - full}}) {
    const auto block = loaded(from.take_kv(s, first, end - first, begin, count));
    CHECK(to.put_kv(s, first, end - first, begin, count, block));
  }
}

/// The logits after the prompt.
std::vector<float> service::prefill(const std::vector<std::uint32_t>& prompt, sequence_id s,
                                    const serving_way& way, inference_device& decoder) {
  const auto stages = parts(way.parts);
  const auto positions = static_cast<std::uint32_t>(prompt.size());
  for (auto* d : stages) CHECK(d->reserve(s, positions));
  payload hidden;
  for (std::uint32_t first = 0; first < positions; first += way.chunk) {
    const auto n = std::min(way.chunk, positions - first);
    hidden =
        payload_of(std::vector<std::uint32_t>{prompt.begin() + first, prompt.begin() + first + n});
    for (auto* d : stages) {
      const auto work = loaded(d->prefill(s, first, hidden, way.adapter));
      hidden = finish(*d, *work, way.suspended);
    }
  }
  for (auto* d : stages)
    if (d != &decoder) {
      send_kv(*d, decoder, s, positions);
      d->release(s);
    }
  const auto width = model_.hidden * sizeof(float);
  const payload last{hidden.owner(), hidden.bytes().last(width)};
  return floats_of(gpu::finish(*loaded(decoder.head(last))));
}

served service::serve(const std::vector<std::uint32_t>& prompt, std::uint32_t new_tokens,
                      const serving_way& way) {
  auto& decoder = device(0, 2 * model_.layers);
  const auto vocabulary = model_.vocabulary;
  const auto positions = static_cast<std::uint32_t>(prompt.size());
  std::vector<decode_row> rows;
  for (std::uint32_t c = 0; c < way.company; ++c) {
    const auto other = random_prompt(1 + 29 * c % 130, vocabulary, 1000 + c);
    const auto length = static_cast<std::uint32_t>(other.size());
    CHECK(decoder.reserve(100 + c, length + new_tokens));
    const auto& all = way.company_adapters;
    const auto by = all.empty() ? adapter_ref{} : all[c % all.size()];
    gpu::finish(*loaded(decoder.prefill(100 + c, 0, payload_of(other), by)));
    rows.push_back({100 + c, length, c % vocabulary, by});
  }
  CHECK(decoder.reserve(ours, positions + new_tokens));
  served out;
  auto logits = prefill(prompt, ours, way, decoder);
  for (std::uint32_t i = 0; i < new_tokens; ++i) {
    const auto token = sample(logits, {}, 0).token;
    out.tokens.push_back(token);
    out.logits.insert(out.logits.end(), logits.begin(), logits.end());
    auto batch = rows;
    const auto mine = i % (way.company + 1);  // at every place of the batch in turn
    batch.insert(batch.begin() + mine, decode_row{ours, positions + i, token, way.adapter});
    const auto work = loaded(decoder.decode(batch, {}));
    const auto hidden = finish(decoder, *work, way.suspended);
    const auto head = loaded(decoder.head(hidden));
    logits = row(floats_of(finish(decoder, *head, way.suspended)), mine, vocabulary);
    for (auto& r : rows) ++r.position;
  }
  intruders_.clear();
  decoder.release(intruder);
  decoder.release(ours);
  for (const auto& r : rows) decoder.release(r.sequence);
  CHECK(decoder.free_pages() == pages);
  return out;
}

}  // namespace troupe::test
