#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "messages/base/fields.hpp"
#include "messages/base/units.hpp"
#include "messages/domain/serving.hpp"

namespace troupe {

/// A decoder's lease. It decodes one of the statement's models.
struct decoder_lease {
  lease_id lease = 0;
  node_index node = 0;            // its number in the cluster file
  std::uint64_t incarnation = 0;  // of its node
  std::uint32_t model = 0;        // index into serving_leases::models

  TROUPE_FIELDS(decoder_lease, lease, node, incarnation, model);
};

/// The lease of a training that may lend its bubbles.
struct lending_lease {
  lease_id lease = 0;             // of the training
  std::vector<node_index> nodes;  // of its parts, the trainer's first
  std::string model;              // the served model whose prompts it may compute

  TROUPE_FIELDS(lending_lease, lease, nodes, model);
};

/// Controller to every front and gateway, on every change and every heartbeat, in clusters with
/// fronts: the leases that decode and those that lend bubbles. Statements of other hosts about
/// decoders and bubbles are ignored. A complete statement: it replaces older ones (by `epoch`, then
/// `sequence`; those of another journal are always older), and holds while the controller is away.
struct serving_leases {
  std::uint64_t journal = 0;               // the controller's
  std::uint64_t epoch = 0;                 // the controller's start
  std::uint64_t sequence = 0;              // of this statement, since that start
  std::vector<served_model_files> models;  // of unfinished jobs; each name once
  std::vector<decoder_lease> decoders;
  std::vector<lending_lease> lendings;

  /// The statement before it was this one: does it replace that?
  bool is_newer_than(const serving_leases& known) const {
    return journal != known.journal ||
           std::pair{epoch, sequence} > std::pair{known.epoch, known.sequence};
  }

  TROUPE_FIELDS(serving_leases, journal, epoch, sequence, models, decoders, lendings);
};

}  // namespace troupe
