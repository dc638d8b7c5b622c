#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "messages/domain/job.hpp"

// The keys of job files: name, field and valid values, in one table for the reader of files, for
// the controller's check of what clients submit, and for `troupe check`. A new key is a field of
// the struct and a row in job_keys.cpp; its default is the field's initial value. An optional field
// at the end of the struct leaves the bytes of jobs without the key as they were.

namespace troupe::admission {

/// Valid numbers, including the ends; `above_low`: without the low end.
struct range {
  double low = 0;
  double high = 1e15;
  bool above_low = false;

  constexpr bool contains(double x) const {
    return x >= low && x <= high && !(above_low && x == low);
  }
};

/// "a number above 0", "a whole number from 1 to 2000": what is expected, for errors. `what` is
/// "a number" or "a whole number".
std::string expected_number(range r, std::string_view what);

/// The fields of these types in a T.
template <class T, class... Field>
using field_among = std::variant<std::monostate, std::function<Field&(T&)>...>;

/// A field of a T that a key sets: a member, or what a function finds in it.
template <class T>
using key_field =
    field_among<T, std::int32_t, std::uint32_t, std::uint64_t, double, bool, std::string,
                std::vector<std::string>, std::optional<std::uint32_t>,
                std::optional<std::uint64_t>, std::optional<double>, std::optional<std::string>,
                std::optional<bool>, std::optional<merge_kind>>;

/// The member of a group of a job's.
template <class Group, class Field>
auto in(Group job_spec::*group, Field Group::*field) {
  return [=](job_spec& s) -> Field& { return s.*group.*field; };
}

/// Which files may, or must, have a key.
struct key_use {
  bool required = false;  // else a missing key leaves the field's initial value
  bool served = false;    // a key of `serve:` jobs, too
};

using word_list = std::vector<std::string>;

/// One key of a map that is read into a T: a number in a range, one of a list of words, or any
/// value of its field's type. The words of an enum are those of its enumerators, in order. A key
/// without a field is read and checked by a function of its own.
template <class T>
struct key {
  key(std::string_view n, key_use u = {}) : name{n}, use{u} {}
  key(std::string_view n, key_field<T> f, key_use u = {}) : name{n}, field{f}, use{u} {}
  key(std::string_view n, key_field<T> f, range r, key_use u = {})
      : name{n}, field{f}, valid{r}, use{u} {}
  key(std::string_view n, key_field<T> f, word_list w, key_use u = {})
      : name{n}, field{f}, words{std::move(w)}, use{u} {}

  std::string_view name;
  key_field<T> field;
  range valid;      // of a number
  word_list words;  // of a choice
  key_use use;
};

template <class T>
using key_table = std::vector<key<T>>;

/// A job's top-level keys, but those of memory_keys(). `has_work`: they must give the amount of
/// work it is, as all but studies and programs must.
key_table<job_spec> job_keys(bool has_work = false);
/// Top-level keys of programs about their memory.
const key_table<memory_options>& memory_keys();
const key_table<memory_options>& lora_keys();  // lora:
const key_table<elastic>& elastic_keys();      // elastic:
const key_table<program_rate>& rate_keys();    // each of its rates:
const key_table<training>& train_keys();       // train:
const key_table<layer_file>& program_keys();
const key_table<slot_costs>& slot_keys();        // slots:
const key_table<serving>& serve_keys();          // serve:
const key_table<bubble_lending>& bubble_keys();  // bubbles:
/// pipeline:. A study has no model from which stages and micro-batches could follow.
key_table<pipeline_wish> pipeline_keys(bool study = false);
const key_table<chosen_group>& group_keys();        // each of its groups:
const key_table<chosen_stage>& group_stage_keys();  // each of their stages:
/// The keys of a model; the sizes are required unless it is given as operators.
key_table<model> model_keys(bool operators = false);

/// The names of all top-level keys of a job file, but for `name`, which files of other kinds have.
std::vector<std::string> job_key_names();

}  // namespace troupe::admission
