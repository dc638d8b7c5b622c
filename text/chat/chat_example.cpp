#include "text/chat/chat_example.hpp"

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <utility>

#include "messages/base/invariant.hpp"
#include "messages/base/refuse.hpp"

namespace troupe::gpu {

namespace {

using token_list = std::vector<std::uint32_t>;

bool begins_with(const token_list& all, const token_list& start) {
  return start.size() <= all.size() && std::equal(start.begin(), start.end(), all.begin());
}

/// Ranges of what is behind `begin`.
std::vector<text_range> ranges_behind(const std::vector<text_range>& all, std::size_t begin) {
  std::vector<text_range> out;
  for (const auto& r : all)
    if (r.end > begin) out.push_back({std::max(r.begin, begin) - begin, r.end - begin});
  return out;
}

/// Grows an example by texts, each of which begins with the one before.
class growing_example {
 public:
  growing_example(const tokenizer& t, const example_rules& rules, token_list ends)
      : tokenizer_{t}, rules_{rules}, ends_{std::move(ends)} {}

  const std::string& text() const { return text_; }

  /// Goes on to this text, whose tokens alone are `whole`. These are taken if they begin with those
  /// that are here; else what is new is encoded by itself. False: that writes another text.
  bool reach(const written_chat& to, token_list whole) {
    TROUPE_INVARIANT(to.text.starts_with(text_), "an example's text grows at its end");
    auto& tokens = made_.tokens;
    const auto before = std::exchange(text_, to.text).size();
    if (begins_with(whole, tokens)) {
      tokens = std::move(whole);
    } else if (text_.size() > before) {
      const auto expected_text = tokenizer_.decode(whole);
      const auto more = tokenizer_.encode(std::string_view{text_}.substr(before),
                                          ranges_behind(to.from_messages, before));
      tokens.insert(tokens.end(), more.begin(), more.end());
      ++cuts_;
      if (tokenizer_.decode(tokens) != expected_text) return false;
    }
    made_.trained.resize(tokens.size(), false);
    return true;
  }

  /// Targets from `begin` to the first token that ends an answer, if it `counts`. False: there is
  /// none that does, and all that is there is a target.
  bool train_from(std::size_t begin, bool counts) {
    const auto& tokens = made_.tokens;
    const auto first = tokens.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto end = std::find_if(first, tokens.end(), [&](std::uint32_t token) {
      return std::ranges::find(ends_, token) != ends_.end();
    });
    const bool found = end != tokens.end();
    const auto last = static_cast<std::size_t>(end - tokens.begin()) + (found ? 1 : 0);
    for (auto i = std::max<std::size_t>(begin, 1); counts && i < last; ++i) made_.trained[i] = true;
    return found;
  }

  void add_end() {
    if (ends_.empty()) return;
    made_.tokens.push_back(ends_.front());
    made_.trained.push_back(true);
  }

  std::size_t tokens() const { return made_.tokens.size(); }
  std::uint32_t cuts() const { return cuts_; }

  training_example take() {
    if (rules_.all && !made_.trained.empty())
      std::fill(made_.trained.begin() + 1, made_.trained.end(), true);
    return std::move(made_);
  }

 private:
  const tokenizer& tokenizer_;
  const example_rules& rules_;
  token_list ends_;
  training_example made_;
  std::string text_;
  std::uint32_t cuts_ = 0;
};

/// A prompt, and the same with its answer.
struct turn {
  std::size_t message = 0;
  bool counts = true;
  written_chat prompt, full;
};

class chat_writer {
 public:
  chat_writer(const chat_template& chats, const tokenizer& t, const example_rules& rules)
      : chats_{chats}, tokenizer_{t}, rules_{rules}, ends_{chats.ends()} {
    for (const auto end : rules.ends)
      if (std::ranges::find(ends_, end) == ends_.end()) ends_.push_back(end);
  }

  expected<void> write(std::span<const chat_message> messages, const std::vector<bool>& trained) {
    auto last = messages.size();
    while (last > 0 && (!trained[last - 1] || messages[last - 1].role != "assistant")) --last;
    TROUPE_INVARIANT(last > 0, "a conversation to learn from has an answer that counts");
    for (std::size_t i = 0; i < last; ++i) {
      if (messages[i].role != "assistant") continue;
      auto prompt = chats_.write(messages.first(i), true, rules_.now);
      if (!prompt) return refuse(prompt.error());
      auto full = chats_.write(messages.first(i + 1), false, rules_.now);
      if (!full) return refuse(full.error());
      turns_.push_back({i, trained[i], std::move(*prompt), std::move(*full)});
    }
    return {};
  }

  expected<made_examples> examples() const {
    if (auto one = joined()) return std::move(*one);
    made_examples made;
    made.split = true;
    for (const auto& one : turns_) {
      if (!one.counts) continue;
      if (!one.full.text.starts_with(one.prompt.text))
        return refuse(reason::kind::invalid,
                      "message {}: found a template that does not write the answer behind its "
                      "prompt, expected the prompt to begin the conversation with the answer",
                      one.message);
      growing_example e{tokenizer_, rules_, ends_};
      e.reach(one.prompt, tokens_of(one.prompt));
      const auto begin = e.tokens();
      if (!e.reach(one.full, tokens_of(one.full)))
        return refuse(reason::kind::invalid,
                      "message {}: found an answer whose first token joins its text with the "
                      "prompt's, expected one that can be encoded alone",
                      one.message);
      if (!e.train_from(begin, true)) e.add_end(), ++made.added_ends;
      made.boundary_cuts += e.cuts();
      made.examples.push_back(e.take());
    }
    return made;
  }

 private:
  token_list tokens_of(const written_chat& chat) const {
    return tokenizer_.encode(chat.text, chat.from_messages);
  }

  /// All answers in one example; nothing: a later prompt does not begin with what is before it, or
  /// nothing ends an answer that others follow.
  std::optional<made_examples> joined() const {
    growing_example e{tokenizer_, rules_, ends_};
    made_examples made;
    for (const auto& one : turns_) {
      const bool is_last = &one == &turns_.back();
      if (!one.prompt.text.starts_with(e.text()) || !one.full.text.starts_with(one.prompt.text) ||
          !e.reach(one.prompt, tokens_of(one.prompt)))
        return {};
      const auto begin = e.tokens();
      if (!e.reach(one.full, tokens_of(one.full))) return {};
      if (e.train_from(begin, one.counts)) continue;
      if (!is_last) return {};
      e.add_end(), ++made.added_ends;
    }
    made.boundary_cuts = e.cuts();
    made.examples.push_back(e.take());
    return made;
  }

  const chat_template& chats_;
  const tokenizer& tokenizer_;
  const example_rules& rules_;
  token_list ends_;
  std::vector<turn> turns_;
};

}  // namespace

expected<made_examples> examples_of_chat(const chat_template& chats, const tokenizer& t,
                                         std::span<const chat_message> messages,
                                         const std::vector<bool>& trained,
                                         const example_rules& rules) {
  chat_writer w{chats, t, rules};
  if (auto ok = w.write(messages, trained); !ok) return refuse(ok.error());
  return w.examples();
}

expected<made_examples> example_of_completion(const tokenizer& t, std::string_view prompt,
                                              std::string_view completion,
                                              const example_rules& rules) {
  growing_example e{t, rules, rules.ends};
  written_chat text{std::string{prompt}, {}};
  e.reach(text, t.encode_prompt(text.text));
  const auto begin = e.tokens();
  text.text += completion;
  if (!e.reach(text, t.encode_prompt(text.text)))
    return refuse(reason::kind::invalid,
                  "found a completion whose first token joins its text with the prompt's, expected "
                  "one that can be encoded alone");
  made_examples made;
  if (!e.train_from(begin, true)) e.add_end(), ++made.added_ends;
  made.boundary_cuts = e.cuts();
  made.examples.push_back(e.take());
  return made;
}

made_examples example_of_text(const tokenizer& t, std::string_view text,
                              const example_rules& rules) {
  made_examples made;
  auto& e = made.examples.emplace_back();
  e.tokens = t.encode_prompt(text);
  const bool ended =
      !e.tokens.empty() && std::ranges::find(rules.ends, e.tokens.back()) != rules.ends.end();
  if (!ended) {
    ++made.added_ends;
    if (!rules.ends.empty()) e.tokens.push_back(rules.ends.front());
  }
  e.trained.assign(e.tokens.size(), true);
  if (!e.trained.empty()) e.trained[0] = false;
  return made;
}

}  // namespace troupe::gpu
