#include "messages/codec/shared_reply.hpp"

#include <algorithm>
#include <memory>

#include "messages/codec/pack.hpp"
#include "messages/wire/message.hpp"

namespace troupe {

namespace {

// A query of all jobs never requests the view or a job's spec, and few lists are cut or paged:
// fields at the end that are empty are left out.
constexpr std::size_t short_fields = 7, cut_fields = 9, paged_fields = 11;
static_assert(shape::field_count<query_reply> == paged_fields,
              "pack the new field in its place below");

std::size_t fields_of(const query_reply& r) {
  if (r.next) return paged_fields;
  return r.older_left_out ? cut_fields : short_fields;
}

}  // namespace

// Many clients ask for all jobs at the same time, and their answers differ only in the fields at
// the beginning: the rest is packed once.
shared_reply::shared_reply(const query_reply& r) : policy_{r.policy}, fields_{fields_of(r)} {
  shape::sink bytes;
  shape::packer out{bytes};
  out.pack(r.jobs);
  out.pack(r.nodes);
  out.pack(r.gateways_absent);
  out.pack(r.gateways);
  if (fields_ >= cut_fields) {
    out.pack(r.view);
    out.pack(r.older_left_out);
  }
  if (fields_ >= paged_fields) {
    out.pack(r.spec);
    out.pack(r.next);
  }
  rest_.assign(bytes.data(), bytes.data() + bytes.size());
}

std::size_t packed_bytes(const job_status& j) {
  thread_local shape::sink bytes;
  bytes.clear();
  shape::packer{bytes}.pack(j);
  return bytes.size();
}

frame shared_reply::encode_for(address from, address to, std::uint64_t request,
                               double now_s) const {
  shape::sink begin;
  shape::packer out{begin};
  out.array(shape::header_fields);
  out.pack(protocol_version);
  out.pack(type_id<query_reply>);
  out.pack(from);
  out.pack(to);
  out.array(fields_);
  out.pack(request);
  out.pack(policy_);
  out.pack(now_s);
  const auto size = begin.size() + rest_.size();
  auto owner = std::make_shared_for_overwrite<std::byte[]>(size);
  std::copy_n(begin.data(), begin.size(), owner.get());
  std::ranges::copy(rest_, owner.get() + begin.size());
  const std::span<const std::byte> view{owner.get(), size};
  return frame{payload{std::shared_ptr<const void>{owner, owner.get()}, view}, {}};
}

}  // namespace troupe
