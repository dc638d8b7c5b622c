#include "text/jinja/template.hpp"

#include <fmt/format.h>

#include "messages/base/refuse.hpp"
#include "text/jinja/evaluator.hpp"
#include "text/jinja/lexer.hpp"

namespace troupe::gpu::jinja {

struct parsed {
  std::string name;
  body whole;
};

/// Errors are exceptions within the parser and evaluator, where they may arise dozens of calls
/// deep, and values from here on. The source is bounded first, since every later limit is relative
/// to it.
expected<compiled> compiled::read(std::string_view source, std::string name) {
  constexpr std::size_t max_source_bytes = 1u << 20;
  if (source.size() > max_source_bytes)
    return refuse(reason::kind::invalid, "{}: the template has {} bytes, expected at most {}", name,
                  source.size(), max_source_bytes);
  try {
    auto p = std::make_shared<parsed>();
    p->whole = parse_template(source);
    p->name = std::move(name);
    compiled c;
    c.parsed_ = std::move(p);
    return c;
  } catch (const located_error& e) {
    return refuse(reason::kind::invalid, "{} line {}: {}", name, e.line, e.text);
  } catch (const error& e) {
    return refuse(reason::kind::invalid, "{}: {}", name, e.what());
  }
}

/// A parsed template is immutable and shared; all state of an evaluation is in its own evaluator,
/// so several threads may evaluate one template. `raise_exception` in a template is a judgement
/// about the conversation, hence the client's error (refused); any other failure is the template's
/// (invalid).
expected<text> compiled::evaluate(std::map<std::string, value, std::less<>> names,
                                  const std::tm& now) const {
  evaluator e{std::move(names), now};
  const auto at = [&](const char* what) {
    return fmt::format("{} line {}: {}", parsed_->name, e.line(), what);
  };
  try {
    return e.run(parsed_->whole);
  } catch (const refusal& r) {
    return refuse(reason::kind::refused, "{} refuses the conversation: {}", parsed_->name,
                  r.what());
  } catch (const error& why) {
    return refuse(reason::kind::invalid, at(why.what()));
  }
}

}  // namespace troupe::gpu::jinja
