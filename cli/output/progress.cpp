#include "cli/output/progress.hpp"

#include <cstdio>

#include <fmt/format.h>

#include "cli/output/human.hpp"

namespace troupe::cli {

std::string progress_text(const job_status& j) {
  if (j.iteration == 0) return {};
  auto text = "iteration " + grouped(j.iteration);
  if (j.iterations > 0)
    text += fmt::format(" of {} ({:.0f} %)", grouped(j.iterations),
                        100 * static_cast<double>(j.iteration) / static_cast<double>(j.iterations));
  if (j.loss) text += fmt::format(", loss {:.4f}", *j.loss);
  if (j.tokens_per_s)
    text += fmt::format(", {} tokens/s", grouped(static_cast<std::uint64_t>(*j.tokens_per_s)));
  if (j.eta_s && !is_final(j.state)) text += fmt::format(", {} left", duration_text(*j.eta_s));
  return text;
}

std::string memory_text(const memory_record& m) {
  // A program without a model has no prediction to compare with.
  if (m.predicted_bytes == 0)
    return fmt::format("data {} x tensor {}: {}", m.what.data_parallel, m.what.tensor_parallel,
                       m.out_of_memory ? std::string{"ran out of memory"}
                                       : "reported peak " + size_text(m.peak_bytes));
  const auto predicted =
      fmt::format("data {} x tensor {}: predicted {} per GPU", m.what.data_parallel,
                  m.what.tensor_parallel, size_text(m.predicted_bytes));
  if (m.out_of_memory) return predicted + ", ran out of memory";
  return fmt::format("{}, reported peak {} ({:.0f} %)", predicted, size_text(m.peak_bytes),
                     100 * m.peak_bytes / m.predicted_bytes);
}

void progress_line::show(const std::string& text) {
  // On standard error, so that it does not get into redirected results.
  if (!on_terminal() || text == shown_) return;
  shown_ = text;
  fmt::print(stderr, "\r\033[K{}", printable(text));
  std::fflush(stderr);
}

bool progress_log::is_due(const std::string& text, double now_s) {
  // A log file needs a line now and then, not one that is overwritten.
  if (terminal_ || now_s < due_s_ || text.empty() || text == printed_) return false;
  due_s_ = now_s + interval_s_;
  printed_ = text;
  return true;
}

std::string with_time_left(std::string text, double share, double elapsed_s) {
  // The first moments say nothing about the rest: what starts up is no measure of what follows.
  constexpr double min_share = 0.01, min_s = 1;
  if (share < min_share || share >= 1 || elapsed_s < min_s) return text;
  return text + fmt::format(", {} left", duration_text(elapsed_s * (1 - share) / share));
}

void work_progress::show(const std::string& text, double share) {
  const auto shown = with_time_left(text, share, since_.s());
  line_.show(shown);
  if (log_.is_due(shown, since_.s())) write_note("troupe: " + printable(shown) + "\n");
}

void progress_line::clear() {
  if (shown_.empty()) return;
  shown_.clear();
  fmt::print(stderr, "\r\033[K");
  std::fflush(stderr);
}

}  // namespace troupe::cli
