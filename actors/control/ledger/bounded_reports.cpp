#include "actors/control/ledger/bounded_reports.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "messages/admission/measured.hpp"
#include "messages/base/cut_text.hpp"

namespace troupe::actors {

namespace {

using namespace admission;

constexpr std::size_t max_sentence_bytes = 4096;
constexpr std::size_t max_word_bytes = 256;
constexpr std::size_t max_events = 200;           // as many as a training's history keeps
constexpr std::size_t max_iterations_kept = 256;  // of a report
constexpr std::size_t max_values = 16;            // of an iteration
constexpr std::size_t max_ports = 256;

void cut(std::string& text, std::size_t max_bytes = max_sentence_bytes) {
  text = cut_text(std::move(text), max_bytes);
}

template <class T>
void cut(std::vector<T>& list, std::size_t max) {
  if (list.size() > max) list.resize(max);
}

void drop_beyond(std::optional<std::uint64_t>& count) {
  if (count && !is_count(*count)) count.reset();
}

void bound(program_progress& p) {
  for (auto* count : {&p.iteration, &p.saved, &p.resumed, &p.last}) drop_beyond(*count);
  if (!is_step(p.step_s)) p.step_s = 0;
  if (p.loss && !std::isfinite(*p.loss)) p.loss.reset();
}

void bound(part_report& p) {
  cut(p.detail);
  if (!is_count(p.iterations)) p.iterations = 0;
  if (!is_memory(p.peak_bytes)) p.peak_bytes = 0;
  if (p.program) bound(*p.program);
}

void bound(iteration_record& i) {
  if (!i.program) return;
  cut(i.program->values, max_values);
  for (auto& v : i.program->values) cut(v.name, max_word_bytes);
}

}  // namespace

node_report bounded(node_report r) {
  cut(r.lost);
  r.reserved.clear();
  for (auto& p : r.parts) bound(p);
  if (r.ports) {
    std::erase_if(*r.ports, [](std::uint16_t port) { return port < 1024; });
    cut(*r.ports, max_ports);
  }
  if (r.python) {
    cut(r.python->interpreter);
    cut(r.python->torch, max_word_bytes);
  }
  return r;
}

training_report bounded(training_report r) {
  cut(r.schedule, max_word_bytes);
  cut(r.device, max_word_bytes);
  for (auto& sentence : r.events) cut(sentence);
  cut(r.events, max_events);
  std::erase_if(r.iterations, [](const auto& i) { return !is_count(i.iteration); });
  cut(r.iterations, max_iterations_kept);
  for (auto& i : r.iterations) bound(i);
  if (!is_count(r.saved)) r.saved = 0;
  if (!std::isfinite(r.tokens_per_s)) r.tokens_per_s = 0;
  cut(r.max_in_flight, max_stages);
  cut(r.measured, max_stages);
  if (r.program) {
    cut(r.program->engine, max_word_bytes);
    cut(r.program->peak_bytes, max_stages);
    for (auto& bytes : r.program->peak_bytes)
      if (!is_memory(static_cast<double>(bytes))) bytes = 0;
  }
  return r;
}

program_end bounded(program_end e) {
  for (auto* count : {&e.saved, &e.reached}) drop_beyond(*count);
  if (e.start_s && !is_time(*e.start_s)) e.start_s.reset();
  if (e.step_s && !is_step(*e.step_s)) e.step_s.reset();
  return e;
}

elastic_record bounded(elastic_record r) {
  std::erase_if(r.costs.rates, [](const auto& rate) { return !is_rate(rate.samples_per_s); });
  for (auto* times : {&r.costs.starts_s, &r.costs.saves_s})
    std::erase_if(*times, [](double s) { return !is_time(s); });
  return r;
}

}  // namespace troupe::actors
