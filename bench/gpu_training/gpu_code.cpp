#include "gpu_training/gpu_code.hpp"

#include <cxxabi.h>
#include <elf.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <span>

namespace troupe::bench {

namespace {

using bytes = std::span<const char>;

constexpr std::uint16_t cuda_machine = 190;  // EM_CUDA

/// Nothing if it would end beyond the bytes.
template <class T>
std::optional<T> at(bytes from, std::size_t offset) {
  if (offset > from.size() || from.size() - offset < sizeof(T)) return std::nullopt;
  T value;
  std::memcpy(&value, from.data() + offset, sizeof value);
  return value;
}
bytes part(bytes from, std::size_t offset, std::size_t size) {
  return offset <= from.size() && size <= from.size() - offset ? from.subspan(offset, size)
                                                               : bytes{};
}
std::string text_at(bytes from, std::size_t offset) {
  if (offset >= from.size()) return {};
  const auto rest = from.subspan(offset);
  return {rest.begin(), std::find(rest.begin(), rest.end(), '\0')};
}

/// A section of an ELF file.
struct section {
  std::string name;
  bytes content;
};

std::vector<section> sections_of(bytes file, const Elf64_Ehdr& header) {
  std::vector<Elf64_Shdr> all;
  for (std::size_t i = 0; i < header.e_shnum; ++i)
    if (const auto s = at<Elf64_Shdr>(file, header.e_shoff + i * sizeof(Elf64_Shdr)))
      all.push_back(*s);
  if (header.e_shstrndx >= all.size()) return {};
  const auto& names = all[header.e_shstrndx];
  const auto text = part(file, names.sh_offset, names.sh_size);
  std::vector<section> sections;
  for (const auto& s : all)
    sections.push_back({text_at(text, s.sh_name),
                        s.sh_type == SHT_NOBITS ? bytes{} : part(file, s.sh_offset, s.sh_size)});
  return sections;
}

bytes content_of(const std::vector<section>& all, const std::string& name) {
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const section& s) { return s.name == name; });
  return found == all.end() ? bytes{} : found->content;
}

/// Registers by the symbol's name. .nv.info is a list of attributes: format, kind, and either a
/// value of 16 bits or a size and as many bytes.
std::map<std::string, std::uint32_t> registers_of(const std::vector<section>& all) {
  constexpr std::uint8_t sized = 4, register_count = 0x2f;
  const auto info = content_of(all, ".nv.info"), symbols = content_of(all, ".symtab"),
             names = content_of(all, ".strtab");
  std::map<std::string, std::uint32_t> registers;
  for (std::size_t i = 0; i + 4 <= info.size();) {
    const auto format = at<std::uint8_t>(info, i), kind = at<std::uint8_t>(info, i + 1);
    const auto size = *format == sized ? *at<std::uint16_t>(info, i + 2) : std::uint16_t{0};
    const auto symbol = at<std::uint32_t>(info, i + 4), count = at<std::uint32_t>(info, i + 8);
    if (*format == sized && *kind == register_count && size == 8 && count)
      if (const auto s = at<Elf64_Sym>(symbols, *symbol * sizeof(Elf64_Sym)))
        registers[text_at(names, s->st_name)] = *count;
    i += 4 + size;
  }
  return registers;
}

// The low 9 bits of an instruction.
enum operation : std::uint32_t {
  hmma = 0x03c,
  load_matrix = 0x03b,
  load_shared = 0x184,
  store_shared = 0x188,
  load_global = 0x181,
  store_global = 0x186,
  copy_to_shared = 0x1ae,
  load_local = 0x183,
  store_local = 0x187,
  special_function = 0x108,
  fselect = 0x008,
  fminmax = 0x009,
  fcompare = 0x00b,
  fmultiply = 0x020,
  fadd = 0x021,
  ffma = 0x023,
  dmultiply = 0x028,
  dadd = 0x029,
  dcompare = 0x02a,
  dfma = 0x02b,
  to_bf16 = 0x03e,
  branch = 0x147,
  leave = 0x14d,
  no_operation = 0x118,
  barrier = 0x11d,
  wait = 0x11a,
  commit = 0x1af,
  open_region = 0x145,
  close_region = 0x141,
  warp_sync = 0x148
};

std::uint32_t instruction_counts::*kind_of(std::uint32_t operation) {
  switch (operation) {
    case hmma:
      return &instruction_counts::tensor;
    case load_matrix:
    case load_shared:
    case store_shared:
      return &instruction_counts::shared;
    case load_global:
    case store_global:
    case copy_to_shared:
    case load_local:
    case store_local:
      return &instruction_counts::global;
    case special_function:
      return &instruction_counts::special;
    case fselect:
    case fminmax:
    case fcompare:
    case fmultiply:
    case fadd:
    case ffma:
    case dmultiply:
    case dadd:
    case dcompare:
    case dfma:
    case to_bf16:
      return &instruction_counts::floats;
    case branch:
    case leave:
    case no_operation:
    case barrier:
    case wait:
    case commit:
    case open_region:
    case close_region:
    case warp_sync:
      return &instruction_counts::control;
    default:
      return &instruction_counts::others;
  }
}

struct instruction {
  std::uint64_t low, high;
  std::uint32_t operation() const { return low & 0x1ff; }
};

/// Where a branch goes, as the number of an instruction. Its distance from the next instruction is
/// in units of 4 bytes: bits 16 to 23, and from bit 34 on the higher ones.
std::int64_t target_of(const instruction& i, std::size_t place) {
  const auto higher = (i.low >> 34) | (i.high & 0x3ffff) << 30;  // 48 bits
  const auto distance = static_cast<std::int64_t>((((i.low >> 16) & 0xff) | higher << 8) << 8) >> 8;
  return static_cast<std::int64_t>(place) + 1 + distance / 4;
}

kernel_code code_of(bytes text) {
  std::vector<instruction> all(text.size() / sizeof(instruction));
  if (!all.empty()) std::memcpy(all.data(), text.data(), all.size() * sizeof(instruction));
  while (!all.empty() && all.back().operation() == no_operation) all.pop_back();  // alignment
  kernel_code k;
  k.instructions = static_cast<std::uint32_t>(all.size());
  std::size_t first = 0, end = all.size();
  for (std::size_t i = 0; i < all.size(); ++i) {
    k.spills += all[i].operation() == load_local || all[i].operation() == store_local ? 1 : 0;
    if (all[i].operation() != branch) continue;
    const auto target = target_of(all[i], i);
    if (target < 0 || target >= static_cast<std::int64_t>(i)) continue;  // its end goes to itself
    const auto from = static_cast<std::size_t>(target);
    if (k.loops && i + 1 - from <= end - first) continue;
    k.loops = true, first = from, end = i + 1;
  }
  for (auto i = first; i < end; ++i) ++(k.loop.*kind_of(all[i].operation()));
  return k;
}

std::string demangled(const std::string& name) {
  int status = 0;
  char* text = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status);
  const std::string result = status == 0 ? text : name;
  std::free(text);
  return result;
}

void read_cubin(bytes file, const Elf64_Ehdr& header, std::vector<kernel_code>& to) {
  const auto sections = sections_of(file, header);
  const auto registers = registers_of(sections);
  const std::string prefix = ".text.";
  for (const auto& s : sections) {
    if (s.name.rfind(prefix, 0) != 0 || s.content.empty()) continue;
    const auto symbol = s.name.substr(prefix.size());
    auto k = code_of(s.content);
    k.name = demangled(symbol);
    if (const auto r = registers.find(symbol); r != registers.end()) k.registers = r->second;
    to.push_back(std::move(k));
  }
}

std::uint32_t architecture_of(const Elf64_Ehdr& h) {
  return h.e_ident[EI_ABIVERSION] >= 8 ? h.e_flags >> 8 & 0xff : h.e_flags & 0xff;
}

}  // namespace

expected<std::vector<kernel_code>> read_gpu_code(const std::filesystem::path& library,
                                                 std::uint32_t architecture) {
  std::ifstream in{library, std::ios::binary};
  const std::vector<char> all{std::istreambuf_iterator<char>{in}, {}};
  if (!in)
    return refuse(reason::kind::unavailable, fmt::format("{}: cannot be read", library.string()));
  std::vector<kernel_code> kernels;
  const std::string magic = ELFMAG;
  for (auto i = all.begin(); i != all.end(); ++i) {
    i = std::search(i, all.end(), magic.begin(), magic.end());
    if (i == all.end()) break;
    const bytes file{i, all.end()};
    const auto header = at<Elf64_Ehdr>(file, 0);
    if (header && header->e_machine == cuda_machine && architecture_of(*header) == architecture)
      read_cubin(file, *header, kernels);
  }
  if (kernels.empty())
    return refuse(reason::kind::unknown,
                  fmt::format("{} has no uncompressed kernels for compute capability {}.{}",
                              library.string(), architecture / 10, architecture % 10));
  return kernels;
}

}  // namespace troupe::bench
