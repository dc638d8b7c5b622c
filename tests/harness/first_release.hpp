#pragma once

#include <vector>

#include "messages/wire/journal.hpp"

// Journal entries as the first release wrote them, byte for byte, and what they are today.

namespace troupe::harness {

struct old_entry {
  journal_entry entry;
  const char* hex;
};

inline std::vector<old_entry> first_release_journal() {
  job_accepted accepted{1, 0x0123456789abcdef, 12.0, {}, {}};
  auto& spec = accepted.spec;
  spec.name = "tiny";
  spec.model.name = "gpt2";
  spec.model.hidden = 768;
  spec.model.layers = 12;
  spec.model.heads = 12;
  spec.model.sequence = 1024;
  spec.model.vocabulary = 50257;
  spec.global_batch = 8;
  spec.iterations = 1000;
  spec.limits.deadline_s = 3600.0;
  spec.program.command = {"python3", "train.py"};
  spec.program.environment = {{"SEED", "1"}};
  lease_granted granted;
  granted.lease = 5, granted.job = 1, granted.at_s = 12.5;
  granted.how = plan{2, 4, 1, 36.75e9, 1.5, 8.0, {0, 2}, true};
  granted.predicted_bytes = 36.75e9, granted.iteration_s = 0.25, granted.start_s = 30;
  granted.parts = {lease_part{1, 7, {0, 1, 2, 3}}, lease_part{4, 9, {0, 1, 2, 3}}};
  part_ended ended;
  ended.lease = 5, ended.part = 1, ended.at_s = 14.0;
  ended.outcome = lease_outcome::failed;
  ended.detail = "no python3";
  return {
      {epoch_begun{2, -0.0, 0, 0}, "92 00 92 02 cb 80 00 00 00 00 00 00 00"},
      {accepted,
       "92 01 94 01 cf 01 23 45 67 89 ab cd ef cb 40 28 00 00 00 00 00 00 "
       "dc 00 14 a4 74 69 6e 79 9b "
       "a4 67 70 74 32 a3 67 70 74 cd 03 00 0c 0c 00 00 cd 04 00 cd c4 51 c3 90 08 cd 03 e8 "
       "c0 c0 cb 40 ac 20 00 00 00 00 00 c0 00 01 a0 90 c3 92 a7 70 79 74 68 6f 6e 33 a8 74 "
       "72 61 69 6e 2e 70 79 81 a4 53 45 45 44 a1 31 a0 a9 65 66 66 69 63 69 65 6e 74 c0 c0 "
       "98 00 00 00 00 00 00 00 c3"},
      {granted,
       "92 02 99 05 01 cb 40 29 00 00 00 00 00 00 98 02 04 01 cb 42 21 1c f0 ff 00 00 00 cb "
       "3f f8 00 00 00 00 00 00 cb 40 20 00 00 00 00 00 00 92 00 02 c3 cb 42 21 1c f0 ff 00 00 "
       "00 cb 3f d0 00 00 00 00 00 00 cb 40 3e 00 00 00 00 00 00 c2 92 93 01 07 94 00 01 02 "
       "03 93 04 09 94 00 01 02 03"},
      {ended,
       "92 04 97 05 01 cb 40 2c 00 00 00 00 00 00 01 00 cb 00 00 00 00 00 00 00 00 "
       "aa 6e 6f 20 70 79 74 68 6f 6e 33"},
  };
}

}  // namespace troupe::harness
