#include "gpu/examples/example_file.hpp"

#include <algorithm>
#include <chrono>
#include <numeric>

#include "gpu/examples/example_line.hpp"
#include "gpu/examples/packing.hpp"
#include "messages/base/refuse.hpp"
#include "messages/base/shown.hpp"
#include "messages/base/untrusted_file.hpp"
#include "messages/base/whole_number.hpp"
#include "text/base/utf8_stream.hpp"
#include "text/tokens/open_tokenizer.hpp"

namespace troupe::gpu {

namespace {

constexpr std::uint64_t max_file_bytes = 8ull << 30, max_tokens = 1ull << 31;
constexpr std::size_t max_line_bytes = 16u << 20;
constexpr std::uint32_t usual_sequence = 2048;
constexpr std::size_t max_keys = 64;

/// Lines of a file, with the last one, which need not end with a newline.
class example_lines {
 public:
  static expected<example_lines> open(const std::string& path) {
    auto file = untrusted_file::open(path);
    if (!file) return refuse(file.error());
    if (file->size() > max_file_bytes)
      return refuse(reason::kind::invalid, "{}: found {} bytes, expected at most {}", path,
                    file->size(), max_file_bytes);
    return example_lines{std::move(*file)};
  }

  std::uint64_t number() const { return number_; }
  std::string place() const { return fmt::format("{}:{}", file_.path(), number_); }

  /// Nothing: there is none.
  expected<std::optional<std::string>> next() {
    for (;;) {
      const auto end = block_.find('\n', searched_);
      if (end != std::string::npos || read_ == file_.size()) return taken(end);
      searched_ = block_.size();
      if (block_.size() - at_ > max_line_bytes) return too_long();
      if (auto ok = read_more(); !ok) return refuse(ok.error());
    }
  }

 private:
  explicit example_lines(untrusted_file file) : file_{std::move(file)} {}

  tl::unexpected<reason> too_long() const {
    return refuse(reason::kind::invalid, "{}:{}: found a line of more than {} bytes, expected less",
                  file_.path(), number_ + 1, max_line_bytes);
  }

  expected<std::optional<std::string>> taken(std::size_t end) {
    if (end == std::string::npos && at_ == block_.size()) return std::nullopt;
    const auto length = std::min(end, block_.size()) - at_;
    if (length > max_line_bytes) return too_long();
    auto line = block_.substr(at_, length);
    at_ = searched_ = std::min(at_ + length + 1, block_.size());
    ++number_;
    return line;
  }

  expected<void> read_more() {
    constexpr std::uint64_t block_bytes = 1 << 16;
    block_.erase(0, at_);
    searched_ -= std::exchange(at_, 0);
    const auto before = block_.size();
    const auto more = std::min<std::uint64_t>(block_bytes, file_.size() - read_);
    block_.resize(before + more);
    if (auto ok = file_.read(read_, std::as_writable_bytes(std::span{block_}).subspan(before)); !ok)
      return ok;
    read_ += more;
    return {};
  }

  untrusted_file file_;
  std::string block_;
  std::size_t at_ = 0,
              searched_ = 0;  // in the block: the next line, and where no newline is before
  std::uint64_t read_ = 0, number_ = 0;
};

/// Midnight of a day, as 2026-11-29; of the present one without a date.
expected<std::tm> time_of(const std::string& date) {
  std::tm t{};
  if (date.empty()) {
    const auto now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
    std::tm today{};
    ::localtime_r(&now, &today);
    t.tm_year = today.tm_year, t.tm_mon = today.tm_mon, t.tm_mday = today.tm_mday;
  } else {
    const auto invalid = [&] {
      return refuse(reason::kind::invalid, "date: found '{}', expected a day as 2026-11-29",
                    shown(date));
    };
    if (date.size() != 10 || date[4] != '-' || date[7] != '-') return invalid();
    const auto year = whole_number<std::uint32_t>(date.substr(0, 4)),
               month = whole_number<std::uint32_t>(date.substr(5, 2)),
               day = whole_number<std::uint32_t>(date.substr(8));
    using namespace std::chrono;
    if (!year || !month || !day ||
        !year_month_day{std::chrono::year(static_cast<int>(*year)), std::chrono::month(*month),
                        std::chrono::day(*day)}
             .ok())
      return invalid();
    t.tm_year = static_cast<int>(*year) - 1900, t.tm_mon = static_cast<int>(*month) - 1,
    t.tm_mday = static_cast<int>(*day);
  }
  ::timegm(&t);  // the day of the week, and of the year
  return t;
}

class example_reader {
 public:
  example_reader(const example_model& m, const example_settings& how, std::tm now)
      : model_{m}, how_{how} {
    set_.sequence = how.sequence > 0 ? how.sequence : std::min(m.model.positions, usual_sequence);
    rules_.now = now;
    rules_.ends = m.model.last_tokens;
    for (const auto end : m.chats.ends())
      if (std::ranges::find(rules_.ends, end) == rules_.ends.end()) rules_.ends.push_back(end);
    set_.has_end = !rules_.ends.empty();
  }

  expected<void> add(const std::string& line, const std::string& place) {
    auto read = read_example_line(line, place);
    if (!read) return refuse(read.error());
    if (set_.lines > 0 && read->key != set_.form)
      return refuse(reason::kind::invalid, "{}: found {}, expected {} as in the lines before",
                    place, read->key, set_.form);
    set_.form = read->key;
    for (const auto& key : read->more_keys)
      if (set_.more_keys.size() < max_keys) set_.more_keys.insert(key);
    if (read->what == example_line::form::text && how_.train_on == targets::answers)
      return refuse(reason::kind::invalid,
                    "{}: found a text, in which nothing is an answer, expected train_on: all",
                    place);
    rules_.all = how_.train_on == targets::all;
    auto made = made_of(*read);
    if (!made) return refuse(made.error().code, "{}: {}", place, made.error().text);
    ++set_.lines;
    set_.split_answers += made->split;
    set_.boundary_cuts += made->boundary_cuts;
    set_.added_ends += made->added_ends;
    for (auto& e : made->examples)
      if (auto ok = keep(std::move(e), place); !ok) return ok;
    return {};
  }

  expected<example_set> take(const std::string& file) {
    if (set_.examples.empty())
      return refuse(reason::kind::invalid, "{}: found {}, expected at least one example", file,
                    set_.dropped > 0 ? "no example that fits into a row" : "no line");
    make_rows(set_, how_.packing);
    return std::move(set_);
  }

 private:
  using targets = example_settings::targets;
  using excess = example_settings::excess;

  expected<made_examples> made_of(const example_line& line) const {
    const auto& words = *model_.words;
    switch (line.what) {
      case example_line::form::text:
        return example_of_text(words, line.text, rules_);
      case example_line::form::completion:
        return example_of_completion(words, line.prompt, line.text, rules_);
      default:
        break;
    }
    return examples_of_chat(model_.chats, words, line.messages, line.trained, rules_);
  }

  expected<void> keep(training_example e, const std::string& place) {
    const auto length = static_cast<std::uint32_t>(e.tokens.size());
    set_.longest = std::max(set_.longest, length);
    if (length > set_.sequence) {
      ++set_.too_long;
      if (how_.too_long == excess::refused)
        return refuse(reason::kind::invalid,
                      "{}: found an example of {} tokens, expected at most {} (sequence); "
                      "too_long: drop skips such examples, cut truncates them",
                      place, length, set_.sequence);
      const auto kept = how_.too_long == excess::cut ? set_.sequence : 0;
      e.tokens.resize(kept), e.trained.resize(kept);
    }
    const auto trained = std::ranges::count(e.trained, true);
    if (trained == 0 && length > set_.sequence) {
      ++set_.dropped;
      return {};
    }
    if (trained == 0)
      return refuse(reason::kind::invalid,
                    "{}: found an example of {} tokens without a target, expected a prompt and an "
                    "answer",
                    place, length);
    set_.tokens += e.tokens.size();
    if (set_.tokens > max_tokens)
      return refuse(reason::kind::invalid, "{}: found more than {} tokens up to here", place,
                    max_tokens);
    const auto first = model_.model.first_token;
    const auto begins = std::ranges::find_if(e.tokens, [&](auto t) { return t != first; });
    set_.begins = std::max(set_.begins, static_cast<std::uint32_t>(begins - e.tokens.begin()));
    set_.examples.push_back(std::move(e));
    set_.line_of.push_back(set_.lines);
    return {};
  }

  const example_model& model_;
  const example_settings& how_;
  example_rules rules_;
  example_set set_;
};

}  // namespace

expected<example_model> open_example_model(const std::filesystem::path& folder) {
  auto m = read_inference_model(folder);
  if (!m) return refuse(m.error());
  auto words = open_tokenizer(folder, m->vocabulary);
  if (!words) return refuse(words.error());
  if (!*words)
    return refuse(reason::kind::invalid, "{}: {}", folder.string(), missing_tokenizer_text(folder));
  auto chats = chat_template::of(folder, **words);
  return example_model{std::move(*m), std::move(*words), std::move(chats)};
}

double example_set::fill() const {
  const auto room = static_cast<double>(rows.size()) * sequence;
  return room > 0 ? static_cast<double>(tokens) / room : 0;
}

void make_rows(example_set& s, bool packing) {
  std::vector<std::uint32_t> lengths;
  s.rows.clear();
  s.tokens = s.trained_tokens = 0;
  for (const auto& e : s.examples) {
    lengths.push_back(static_cast<std::uint32_t>(e.tokens.size()));
    s.tokens += e.tokens.size();
    s.trained_tokens += static_cast<std::uint64_t>(std::ranges::count(e.trained, true));
  }
  if (packing) {
    s.rows = packed(lengths, s.sequence);
  } else {
    for (std::uint32_t i = 0; i < lengths.size(); ++i) s.rows.push_back({i});
  }
}

expected<example_set> read_examples(const std::string& file, const example_model& m,
                                    const example_settings& how) {
  const auto now = time_of(how.date);
  if (!now) return refuse(now.error());
  if (how.sequence > m.model.positions)
    return refuse(reason::kind::invalid,
                  "sequence: found {}, expected at most the model's {} positions", how.sequence,
                  m.model.positions);
  auto lines = example_lines::open(file);
  if (!lines) return refuse(lines.error());
  example_reader reader{m, how, *now};
  for (;;) {
    const auto line = lines->next();
    if (!line) return refuse(line.error());
    if (!*line) break;
    if ((*line)->find_first_not_of(" \t\r") == std::string::npos) continue;
    if (auto ok = reader.add(**line, lines->place()); !ok) return refuse(ok.error());
  }
  return reader.take(file);
}

shown_example shown_example_of(const tokenizer& t, const training_example& e) {
  shown_example out;
  utf8_stream characters;
  std::uint64_t at = 0;
  const auto add = [&](const std::string& text) {
    out.text += text;
    at += static_cast<std::uint64_t>(
        std::ranges::count_if(text, [](char c) { return (c & 0xc0) != 0x80; }));
  };
  for (std::size_t i = 0; i < e.tokens.size(); ++i) {
    const auto before = at;
    add(characters.add(t.written(e.tokens[i])));
    if (i + 1 == e.tokens.size()) add(characters.end());
    if (!e.trained[i] || at == before) continue;
    if (!out.trained.empty() && out.trained.back().second == before && i > 0 && e.trained[i - 1])
      out.trained.back().second = at;
    else
      out.trained.emplace_back(before, at);
  }
  return out;
}

}  // namespace troupe::gpu
