#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "gpu/text/jinja_evaluator.hpp"

namespace troupe::gpu::jinja {

namespace {

class function final : public object {
 public:
  using made = value (*)(evaluator&, const arguments&);
  explicit function(made f) : made_{f} {}
  std::string_view kind() const override { return "function"; }
  bool callable() const override { return true; }
  value call(evaluator& e, const arguments& given) override { return made_(e, given); }

 private:
  made made_;
};

/// A method that is not called where it is named: `{% set f = x.strip %}`.
class method final : public object {
 public:
  method(value of, std::string name) : of_{list{{std::move(of)}}}, name_{std::move(name)} {}
  std::string_view kind() const override { return "method"; }
  unsigned depth() const override { return of_.depth(); }
  bool callable() const override { return true; }
  value call(evaluator& e, const arguments& given) override {
    return call_method(e, of_.as_list()->items[0], name_, given);
  }

 private:
  value of_;  // in a list, which knows its depth
  std::string name_;
};

/// State of a cycler; `next` and `reset` are objects that share it.
struct cycle_state {
  list all;
  std::size_t at = 0;
};

class cycle_step final : public object {
 public:
  cycle_step(std::shared_ptr<cycle_state> s, bool reset) : state_{std::move(s)}, reset_{reset} {}
  std::string_view kind() const override { return "method of a cycler"; }
  unsigned depth() const override { return state_->all.depth; }
  bool callable() const override { return true; }
  value call(evaluator&, const arguments&) override {
    auto& [all, at] = *state_;
    if (reset_) {
      at = 0;
      return none{};
    }
    auto v = all.items[at];
    at = (at + 1) % all.items.size();
    return v;
  }

 private:
  std::shared_ptr<cycle_state> state_;
  bool reset_;
};

class cycler final : public object {
 public:
  explicit cycler(list all) : state_{std::make_shared<cycle_state>(std::move(all))} {}
  std::string_view kind() const override { return "cycler"; }
  unsigned depth() const override { return state_->all.depth; }
  value attribute(const std::string& name) const override {
    if (name == "current") return state_->all.items[state_->at];
    if (name == "next" || name == "reset")
      return std::shared_ptr<object>{std::make_shared<cycle_step>(state_, name == "reset")};
    return object::attribute(name);
  }

 private:
  std::shared_ptr<cycle_state> state_;
};

class joiner final : public object {
 public:
  explicit joiner(value between) : between_{std::move(between)} {}
  std::string_view kind() const override { return "joiner"; }
  bool callable() const override { return true; }
  value call(evaluator&, const arguments&) override {
    return std::exchange(used_, true) ? between_ : value{""};
  }

 private:
  value between_;
  bool used_ = false;
};

/// Jinja's sandbox has the same limit, MAX_RANGE. The numbers are made at once and charged for.
value make_range(evaluator& e, const arguments& given) {
  std::int64_t ends[3] = {0, 0, 1};
  const auto count = given.positional.size();
  if (count < 1 || count > 3 || !given.named.empty())
    fail(fmt::format("range: found {} arguments, expected 1 to 3", count));
  for (std::size_t i = 0; i < count; ++i) {
    const auto* n = given.positional[i].integer_like(ends[i]);
    if (!n) fail(fmt::format("range: found a {}, expected integers", type_of(given.positional[i])));
    ends[i] = *n;
  }
  if (count == 1) std::swap(ends[0], ends[1]);
  const auto step = ends[2];
  if (step == 0) fail("range: found the step 0");
  std::vector<value> all;
  constexpr std::size_t max_range = 100'000;
  for (auto at = ends[0]; step > 0 ? at < ends[1] : at > ends[1];) {
    if (all.size() >= max_range)
      fail(fmt::format("range: has more than {} numbers, expected fewer", max_range));
    all.emplace_back(at);
    if (__builtin_add_overflow(at, step, &at)) break;
  }
  e.work().bytes(all.size() * sizeof(value));
  return list{std::move(all), list::kind::range};
}

value make_dictionary(evaluator& e, const arguments& given) {
  dictionary d;
  if (given.positional.size() > 1) fail("dict: found several arguments, expected one");
  if (!given.positional.empty()) {
    const auto& from = given.positional[0];
    if (const auto* other = from.as_dictionary()) {
      e.work().bytes(other->entries.size() * sizeof(dictionary::entry));
      d = *other;
    } else {
      for (const auto& pair : items_of(from, e.work())) {
        auto both = items_of(pair, e.work());
        if (both.size() != 2) fail("dict: found an item that is no pair");
        d.set(std::move(both[0]), std::move(both[1]), e.work());
      }
    }
  }
  for (const auto& [name, v] : given.named) d.set(value{name}, v, e.work());
  return d;
}

/// A namespace may come to contain itself, hence the promise to clear it.
value make_namespace(evaluator& e, const arguments& given) {
  const auto all = make_dictionary(e, given);
  const auto made = std::make_shared<space>();
  for (const auto& [key, v] : all.as_dictionary()->entries)
    if (const auto* name = key.as_text()) made->attributes[name->bytes()] = v;
  e.work().bytes(sizeof(space));
  e.remember([made] { made->attributes.clear(); });
  return std::shared_ptr<object>{made};
}

value make_cycler(evaluator&, const arguments& given) {
  if (given.positional.empty()) fail("cycler: found no values");
  return std::shared_ptr<object>{std::make_shared<cycler>(list{given.positional})};
}

value make_joiner(evaluator&, const arguments& given) {
  const bound args{"joiner", given, {"sep"}};
  return std::shared_ptr<object>{
      std::make_shared<joiner>(args[0] ? value{args.needed_text(0)} : value{", "})};
}

/// transformers adds it; templates refuse conversations with it, such as two user turns in a row.
value raise_exception(evaluator& e, const arguments& given) {
  const bound args{"raise_exception", given, {"message"}};
  throw refusal{shown(args.needed(0), e.work()).bytes()};
}

/// transformers adds it for templates that write the date. Conversions are a list of known letters,
/// since an unknown one is undefined behaviour of strftime(); `%-d` without the leading zero is an
/// extension of glibc. A zero byte would cut the format off unseen.
value strftime_now(evaluator& e, const arguments& given) {
  const bound args{"strftime_now", given, {"format"}};
  const auto& format = args.needed_text(0).bytes();
  for (auto at = format.find('%'); at != format.npos; at = format.find('%', at + 2)) {
    const auto letter = at + 1 + (format.substr(at + 1, 1) == "-");
    constexpr std::string_view known = "aAbBcdDeFGhHIjkmMnpRSTuUVwWxXyY%";
    if (letter >= format.size() || known.find(format[letter]) == known.npos)
      fail(fmt::format("strftime_now: the format '{}' is not supported", format));
    at = letter - 1;
  }
  if (format.empty()) return value{""};
  constexpr std::size_t max_bytes = 4096;
  char out[max_bytes];
  const auto size = std::strftime(out, sizeof out, format.c_str(), &e.now());
  if (size == 0 || std::strlen(format.c_str()) != format.size())
    fail(fmt::format("strftime_now: makes more than {} bytes, expected fewer", max_bytes));
  return value{std::string(out, size)};
}

struct known_function {
  std::string_view name;
  function::made made;
};
constexpr known_function functions[] = {
    {"range", make_range},          {"dict", make_dictionary}, {"namespace", make_namespace},
    {"cycler", make_cycler},        {"joiner", make_joiner},   {"raise_exception", raise_exception},
    {"strftime_now", strftime_now},
};

}  // namespace

value space::attribute(const std::string& name) const {
  const auto found = attributes.find(name);
  return found == attributes.end() ? object::attribute(name) : found->second;
}

value global_function(std::string_view name) {
  for (const auto& f : functions)
    if (f.name == name) return std::shared_ptr<object>{std::make_shared<function>(f.made)};
  return {};
}

value method_of(const value& v, const std::string& name) {
  return std::shared_ptr<object>{std::make_shared<method>(v, name)};
}

}  // namespace troupe::gpu::jinja
