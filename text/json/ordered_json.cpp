#include "text/json/ordered_json.hpp"

#include <string>
#include <utility>
#include <vector>

#include "messages/base/invariant.hpp"

namespace troupe::gpu {

namespace {

using nlohmann::ordered_json;

/// nlohmann's parser with a callback looks through all members of a container at the end of each
/// object in it: time in proportion to the square of their number. One without recursion that hands
/// out values does not.
class reader final : public nlohmann::json_sax<ordered_json> {
 public:
  reader(json_limits l, std::optional<std::string_view> member)
      : limits_{l}, member_{member}, wanted_{!member} {}

  std::optional<ordered_json> result() && { return std::move(root_); }

  bool null() override { return add(nullptr); }
  bool boolean(bool v) override { return add(v); }
  bool number_integer(number_integer_t v) override { return add(v); }
  bool number_unsigned(number_unsigned_t v) override { return add(v); }
  bool number_float(number_float_t v, const string_t&) override { return add(v); }
  bool string(string_t& v) override { return add(std::move(v)); }
  bool binary(binary_t&) override { return false; }
  bool start_array(std::size_t) override { return start(ordered_json::array()); }
  bool end_array() override { return end(); }
  bool start_object(std::size_t) override { return start(ordered_json::object()); }
  bool end_object() override { return end(); }
  bool key(string_t& name) override {
    if (member_ && depth_ == 1) wanted_ = name == *member_;
    name_ = std::move(name);
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::json::exception&) override {
    return false;
  }

 private:
  // A container's place stays where it is while it is open: nothing else is added beside it.
  ordered_json* place(ordered_json v) {
    if (open_.empty()) return &root_.emplace(std::move(v));
    TROUPE_INVARIANT(open_.back()->is_array() || open_.back()->is_object(),
                     "a value that is not the first is in a list or an object");
    auto& parent = *open_.back();
    if (parent.is_array()) {
      parent.push_back(std::move(v));
      return &parent.back();
    }
    if (parent.size() >= limits_.names && !parent.contains(name_)) return nullptr;
    return &(parent[name_] = std::move(v));
  }
  bool is_inside() const { return wanted_ && (!member_ || depth_ > 0); }
  bool add(ordered_json v) { return !is_inside() || place(std::move(v)) != nullptr; }
  bool start(ordered_json v) {
    const bool inside = is_inside();
    if (++depth_ > limits_.levels) return false;
    if (!inside) return true;
    auto* at = place(std::move(v));
    if (at != nullptr) open_.push_back(at);
    return at != nullptr;
  }
  bool end() {
    --depth_;
    if (!open_.empty()) open_.pop_back();
    return true;
  }

  json_limits limits_;
  std::optional<std::string_view> member_;
  bool wanted_;  // what comes belongs to the result
  std::size_t depth_ = 0;
  std::string name_;
  std::vector<ordered_json*> open_;
  std::optional<ordered_json> root_;
};

}  // namespace

std::optional<ordered_json> parse_in_order(std::string_view text, json_limits l,
                                           std::optional<std::string_view> member) {
  reader r{l, member};
  if (!ordered_json::sax_parse(text, &r)) return {};
  return std::move(r).result();
}

}  // namespace troupe::gpu
