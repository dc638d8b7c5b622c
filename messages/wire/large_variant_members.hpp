#pragma once

#include <utility>

#include "messages/wire/large_variant.hpp"

// For the files that instantiate a large_variant, and for no others.

namespace troupe {

template <class V>
large_variant<V>::large_variant() = default;
template <class V>
large_variant<V>::large_variant(const large_variant& other) = default;
template <class V>
large_variant<V>::large_variant(large_variant&& other) noexcept = default;
template <class V>
large_variant<V>& large_variant<V>::operator=(const large_variant& other) = default;
template <class V>
large_variant<V>& large_variant<V>::operator=(large_variant&& other) noexcept = default;
template <class V>
large_variant<V>::~large_variant() = default;

template <class V>
large_variant<V>::large_variant(std::size_t index, void* value) {
  const auto take = [&]<std::size_t... I>(std::index_sequence<I...>) {
    (void)((I == index && (this->template emplace<I>(
                               std::move(*static_cast<std::variant_alternative_t<I, V>*>(value))),
                           true)) ||
           ...);
  };
  take(std::make_index_sequence<std::variant_size_v<V>>());
}

}  // namespace troupe
