#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "messages/base/fields.hpp"
#include "messages/domain/address.hpp"
#include "messages/domain/layer_file.hpp"
#include "messages/domain/stage_name.hpp"
#include "messages/domain/training.hpp"

// Tensors between stages, directly or through gateways: activations, gradients, their sums, states,
// and the words that agree on an update (docs/operating.md describes how gateways share a WAN).

namespace troupe {

/// The path of a tensor over the WAN (ATLAS, section 4.3): the node pairs `first_pair` to
/// `first_pair + pairs - 1`, one for each pipeline of the sender's DP-cell. No pairs: it does not
/// cross the WAN.
struct wan_path {
  std::uint32_t first_pair = 0;   // the first of the node pairs whose bandwidth it uses
  std::uint32_t pairs = 1;        // number of pairs
  std::uint32_t connections = 1;  // of each pair
  bool serialized = false;        // one transfer at a time per hop and direction of the DP-cell
  std::uint32_t turn = 0;         // if serialized: the smallest waiting turn goes first

  TROUPE_FIELDS(wan_path, first_pair, pairs, connections, serialized, turn);
};

/// A pipeline's part of an iteration's record, which its last stage has.
struct pipeline_record {
  std::uint32_t pipeline = 0;
  double loss = 0;                  // mean over its micro-batches
  std::vector<named_value> values;  // of a program: sums over them

  TROUPE_FIELDS(pipeline_record, pipeline, loss, values);
};

/// An update that all stages agreed on.
struct agreed_update {
  double squared_norm = 0;               // of all layers, if the program needs it
  std::vector<pipeline_record> records;  // of all pipelines, in their order

  TROUPE_FIELDS(agreed_update, squared_norm, records);
};

/// Stage to stage, directly inside a datacenter, else through the gateways of their nodes. The
/// frame's body is the data; in a simulation it is empty, and the transfer takes as long as `bytes`
/// would.
struct tensor {
  enum class kind : std::uint8_t {
    activation,    // to the next stage
    gradient,      // to the stage before
    partial,       // data parallel: the sender's gradients of the receiver's chunk
    sum,           // data parallel: the sender's chunk, summed over all pipelines
    tied_partial,  // the last stage's gradient of a tied embedding, to the first
    tied_sum,      // the sum of both, back to the last
    ready,    // the sender can update, and in pipeline 0 its peers and all stages behind can, too:
              // to the same stage of pipeline 0, and from that to the one before. The body, of 8
              // bytes: the squared norm of the layers from the last to the sender's; of
              // programs that need none 0. A ninth byte, here and of a commit: 1: no checkpoint
              // follows the update, 2: no copy of the state
    commit,   // all stages can update, and do: from the first stage of pipeline 0 to the next
              // one, and from each stage of that pipeline to its peers. The body: the squared
              // norm of all layers
    running,  // data parallel, over datacenters: a chunk of the gradients, summed over all
              // pipelines up to the sender's datacenter, to the next one
    running_sum,  // the same on its way back, summed over all pipelines: to the one
                  // before, and so on to the first
    state  // a part of the sender's parameters, moments and counts after this many iterations, to a
           // peer that joins a view and has asked for it; none: the sender cannot give it
  };
  static constexpr std::size_t kinds = 11;
  kind what = kind::activation;
  stage_name from;
  std::uint32_t to_pipeline = 0, to_stage = 0;
  std::uint64_t iteration = 0;
  std::uint32_t microbatch = 0;  // of `running` and `running_sum`: the chunk; of `state`: the part
  std::uint64_t bytes = 0;
  double sent_s = 0;  // on the trainer's clock
  wan_path path;
  /// The sender's `stage_setup::incarnation`. A stage of another one takes it for nothing: what was
  /// agreed on under another trainer does not count.
  std::uint64_t term = 0;
  /// GPUs that send it together, where the cluster names what one GPU's flow gets; none: one.
  std::optional<std::uint32_t> flows{};
  /// Its stage has sent it before; none: no, or traffic has no price.
  std::optional<bool> resent{};
  /// The view in which `ready` or `commit` was said, or a state asked for. None: the first.
  std::optional<std::uint64_t> view{};
  /// With `ready` those of the pipelines that are known so far; with `commit` of all. None: the
  /// training does not heal.
  std::optional<std::vector<pipeline_record>> records{};
  /// The number of parts that a `state` was cut into.
  std::optional<std::uint32_t> parts{};
  static constexpr std::size_t required = 10;

  TROUPE_FIELDS(tensor, what, from, to_pipeline, to_stage, iteration, microbatch, bytes, sent_s,
                path, term, flows, resent, view, records, parts);
};

/// Sums of a chunk of gradients on their way between datacenters.
inline bool is_chunk(tensor::kind k) {
  return k == tensor::kind::running || k == tensor::kind::running_sum;
}

/// Stage to stage: tensors of an iteration that have not arrived. The receiver sends those again,
/// as `tensor`, that it sent at least `older_than_s` ago, and half a second at the least; that time
/// doubles with each repetition, up to four times. A tensor that it has not sent yet follows when
/// it is computed, and has no other answer. A tensor that arrives twice is taken once. A `state` is
/// sent only on request, and at once.
struct tensor_request {
  tensor::kind what = tensor::kind::activation;
  stage_name from;                              // the stage that waits
  std::uint32_t to_pipeline = 0, to_stage = 0;  // of the stage that sends such tensors to it
  std::uint64_t iteration = 0;
  /// Those that are missing, of activations and gradients, and of chunks; of a state the part; of
  /// others none.
  std::vector<std::uint32_t> microbatches;
  double older_than_s = 0;  // minimum time since it was sent; at least half a second

  TROUPE_FIELDS(tensor_request, what, from, to_pipeline, to_stage, iteration, microbatches,
                older_than_s);
};

/// Gateway to gateway: a part of a tensor's data, in the body, over one connection of a node pair.
/// The receiver reassembles the tensor when all `count` parts have arrived, and delivers it at
/// once: tensors may overtake each other. A transfer that gets no further for 5 s is dropped. A
/// flow is the sequence of tensors from one stage to another.
struct stripe {
  std::uint64_t epoch = 0;  // of the flow at the sending gateway; a new one restarts the numbering
  std::uint64_t transfer = 0;  // the tensor's number in the flow's epoch, from 0
  std::uint32_t index = 0;     // of this stripe
  std::uint32_t count = 1;     // of the tensor's stripes
  std::uint64_t offset = 0;    // of this part in the tensor
  address from = 0;            // the tensor's sender: a node
  address to = 0;              // the tensor's receiver: a node
  tensor what;

  TROUPE_FIELDS(stripe, epoch, transfer, index, count, offset, from, to, what);
};

}  // namespace troupe
