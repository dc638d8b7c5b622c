#include "messages/codec/shared_reply.hpp"

#include <algorithm>
#include <memory>

#include "messages/codec/pack.hpp"
#include "messages/wire/message.hpp"

namespace troupe {

namespace {

constexpr std::size_t header_fields = 5;  // version, type, from, to, the message
// Without the last three, or the last: a query of all jobs never requests the view or a job's spec,
// and few lists are cut.
constexpr std::size_t short_reply_fields = 7, reply_fields = 9;
static_assert(shape::field_count<query_reply> == reply_fields + 1,
              "pack the new field in its place below");

}  // namespace

// Many clients ask for all jobs at the same time, and their answers differ only in the fields at
// the beginning: the rest is packed once.
shared_reply::shared_reply(const query_reply& r)
    : policy_{r.policy}, fields_{r.older_left_out ? reply_fields : short_reply_fields} {
  shape::sink bytes;
  shape::packer out{bytes};
  out.pack(r.jobs);
  out.pack(r.nodes);
  out.pack(r.gateways_absent);
  out.pack(r.gateways);
  if (r.older_left_out) {
    out.pack(r.view);
    out.pack(r.older_left_out);
  }
  rest_.assign(bytes.data(), bytes.data() + bytes.size());
}

frame shared_reply::encode_for(address from, address to, std::uint64_t request,
                               double now_s) const {
  shape::sink begin;
  shape::packer out{begin};
  out.array(header_fields);
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
