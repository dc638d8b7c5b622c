#include "actors/training/collectives/gradient_all_reduce.hpp"

#include <fmt/format.h>

namespace troupe::actors {

bool tied_to_another(const stage_setup& s) {
  return s.model.tied_head && s.stages > 1 && (s.name.stage == 0 || s.name.stage + 1 == s.stages);
}

bool gradient_all_reduce::needed(const stage_setup& s) {
  return s.pipelines > 1 || tied_to_another(s);
}

gradient_all_reduce::gradient_all_reduce(const stage_setup& s)
    : pipelines_{s.pipelines},
      pipeline_{s.name.pipeline},
      stages_{s.stages},
      stage_{s.name.stage},
      gives_tied_{tied_to_another(s) && s.name.stage > 0},
      takes_tied_{tied_to_another(s) && s.name.stage == 0},
      exchange_{s.pipelines, s.name.pipeline} {}

gradient_all_reduce::parcels gradient_all_reduce::begin(payload own, std::uint64_t own_bytes,
                                                        payload tied, std::uint64_t tied_bytes) {
  own_ = std::move(own), own_bytes_ = own_bytes;
  tied_ = std::move(tied), tied_bytes_ = tied_bytes;
  begun_ = true;
  parcels out;
  if (gives_tied_) add_tied(out, tensor::kind::tied_part, 0);
  look(out);
  return out;
}

gradient_all_reduce::parcels gradient_all_reduce::take(const tensor& t, payload body) {
  parcels out;
  if (t.what == tensor::kind::tied_part || t.what == tensor::kind::tied_sum) {
    if (others_) return out;  // it came twice
    others_ = std::move(body);
  } else {
    add(out, exchange_.take(t, std::move(body)));
  }
  if (begun_ && !complete_) look(out);
  return out;
}

std::vector<gradient_all_reduce::missing_tensor> gradient_all_reduce::missing() const {
  std::vector<missing_tensor> result;
  if (!begun_ || complete_) return result;
  for (const auto& [what, from] : exchange_.missing()) result.push_back({what, from, stage_});
  if (takes_tied_ && !others_) result.push_back({tensor::kind::tied_part, pipeline_, stages_ - 1});
  if (gives_tied_ && !others_) result.push_back({tensor::kind::tied_sum, pipeline_, 0});
  return result;
}

void gradient_all_reduce::look(parcels& out) {
  if (!given_ && !give_part(out)) return;
  if (!summed_ && !take_sum(out)) return;
  if (gives_tied_) {
    if (!others_ || !tied_fits()) return;
    tied_ = *others_;
  }
  complete_ = true;
}

/// The other stage's part of the embedding, or its sum, is as large as this one's.
bool gradient_all_reduce::tied_fits() {
  const auto wanted = tied_.bytes().size(), came = others_->bytes().size();
  if (came != wanted && mistake_.empty())
    mistake_ = fmt::format("a tied embedding's gradients have {} bytes, expected {}", came, wanted);
  return came == wanted;
}

/// Gives this pipeline's part to the peers, once it is whole.
bool gradient_all_reduce::give_part(parcels& out) {
  if (takes_tied_) {
    if (!others_ || !tied_fits()) return false;
    tied_ = sum_of(tied_, *others_);
  }
  if (pipelines_ > 1)
    add(out, exchange_.begin(gives_tied_ ? own_ : joined(own_, tied_),
                             own_bytes_ + (gives_tied_ ? 0 : tied_bytes_)));
  return given_ = true;
}

bool gradient_all_reduce::take_sum(parcels& out) {
  if (pipelines_ > 1) {
    if (!exchange_.complete()) return false;
    const auto sum = exchange_.result();
    if (const auto size = sum.bytes().size(); size > 0) {
      own_ = slice(sum, 0, own_bytes_);
      if (!gives_tied_) tied_ = slice(sum, own_bytes_, size - own_bytes_);
    }
  }
  if (takes_tied_) add_tied(out, tensor::kind::tied_sum, stages_ - 1);
  return summed_ = true;
}

void gradient_all_reduce::add(parcels& out, std::vector<host_all_reduce::parcel> more) const {
  for (auto& p : more) out.push_back({p.what, p.to_pipeline, stage_, std::move(p.body), p.bytes});
}

void gradient_all_reduce::add_tied(parcels& out, tensor::kind what, std::uint32_t to_stage) const {
  out.push_back({what, pipeline_, to_stage, tied_, tied_bytes_});
}

}  // namespace troupe::actors
