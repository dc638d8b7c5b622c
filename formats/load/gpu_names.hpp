#pragma once

#include <span>
#include <string_view>

#include "messages/domain/cluster.hpp"

namespace troupe::formats {

/// The type of a GPU by the name and memory that its driver reports ("NVIDIA H100 80GB HBM3" is an
/// H100-80GB, "NVIDIA H100 PCIe" an H100-PCIe-80GB): all words of the type's name are in the
/// device's, and the device's name has no others, except for brands, sizes of memory and words that
/// change no figure of the catalogue. Null: not in the catalogue, as far as its name says.
const gpu_type* type_of_device(std::span<const gpu_type> catalogue, std::string_view device,
                               double memory_bytes);

}  // namespace troupe::formats
