#pragma once

#include <ctime>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "messages/base/reason.hpp"
#include "text/jinja/value.hpp"

namespace troupe::gpu::jinja {

struct parsed;

/// A template of the subset of Jinja that templates of chats use, set up as transformers does it:
/// the newline after a tag and the white space before it on its line are no text.
class compiled {
 public:
  /// `name`: whose text it is, for errors. Fails for what is malformed or not supported, with the
  /// line and the construct.
  static expected<compiled> read(std::string_view source, std::string name);

  /// Fails with the line for what goes wrong, and for work beyond the limits of work.hpp;
  /// with the template's own sentence (reason::kind::refused) if it calls raise_exception. `now` is
  /// what strftime_now writes.
  expected<text> evaluate(std::map<std::string, value, std::less<>> names,
                          const std::tm& now) const;

 private:
  std::shared_ptr<const parsed> parsed_;
};

}  // namespace troupe::gpu::jinja
