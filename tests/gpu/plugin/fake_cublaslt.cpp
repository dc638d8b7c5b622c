// A fake libcublasLt: computes D = epilogue(alpha op(A) op(B) + beta C), column-major, from what
// its descriptors contain, and refuses what cuBLASLt does.
#include <cublasLt.h>

#include <cstring>
#include <map>
#include <new>

#include "gpu/emulation/emulated_machine.hpp"
#include "gpu/plugin/fake_state.hpp"

using namespace troupe::test::fake_cuda;
namespace cuda = troupe::gpu::cuda;

namespace {

struct handle {
  int device;
};

struct description {
  cublasComputeType_t compute;
  cudaDataType_t scale;
  std::int32_t turned_a = CUBLAS_OP_N, turned_b = CUBLAS_OP_N;
  std::uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
  void* aux = nullptr;
  std::int64_t aux_ld = 0;

  bool has_bias() const { return (epilogue & CUBLASLT_EPILOGUE_BIAS) != 0; }
  bool has_aux() const { return (epilogue & 128) != 0; }
  bool supported() const {
    return epilogue == CUBLASLT_EPILOGUE_DEFAULT || epilogue == CUBLASLT_EPILOGUE_BIAS ||
           epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS || epilogue == CUBLASLT_EPILOGUE_DGELU;
  }
};

struct layout {
  cudaDataType type;
  std::uint64_t rows, columns;
  std::int64_t ld;

  std::size_t value_bytes() const { return type == CUDA_R_32F ? 4 : 2; }
  std::size_t bytes() const {
    return ((columns - 1) * static_cast<std::size_t>(ld) + rows) * value_bytes();
  }
  bool valid() const {
    return rows > 0 && columns > 0 && ld >= static_cast<std::int64_t>(rows) &&
           (type == CUDA_R_32F || type == CUDA_R_16BF);
  }
};

struct preference {
  std::uint64_t workspace = 0;
  std::uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_MASK;
  std::map<int, std::uint32_t> alignment;  // 256 if not set
};

/// In cublasLtMatmulAlgo_t::data.
struct algorithm {
  std::uint64_t scheme, workspace, epilogue;
  std::uint64_t alignments[4];  // of A, B, C and D
};
static_assert(sizeof(algorithm) <= sizeof(cublasLtMatmulAlgo_t));

/// A product's arguments, copied at its call: descriptors may change before the stream gets to it.
struct work {
  description how;
  layout a, b, d;
  const void *from_a, *from_b, *from_c;
  void* to;
  float alpha, beta;
  bool another_order;
};

description& of(cublasLtMatmulDesc_t d) {
  return *reinterpret_cast<description*>(d);
}
layout& of(cublasLtMatrixLayout_t l) {
  return *reinterpret_cast<layout*>(l);
}
preference& of(cublasLtMatmulPreference_t p) {
  return *reinterpret_cast<preference*>(p);
}

template <class T>
cublasStatus_t store(T& to, const void* from, std::size_t bytes) {
  if (from == nullptr || bytes != sizeof to) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&to, from, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

bool fits(const description& how, const layout& a, const layout& b, const layout& c,
          const layout& d) {
  const auto m = how.turned_a == CUBLAS_OP_T ? a.columns : a.rows;
  const auto k = how.turned_a == CUBLAS_OP_T ? a.rows : a.columns;
  const auto n = how.turned_b == CUBLAS_OP_T ? b.rows : b.columns;
  const auto k2 = how.turned_b == CUBLAS_OP_T ? b.columns : b.rows;
  return a.valid() && b.valid() && c.valid() && d.valid() && k == k2 && d.rows == m &&
         d.columns == n && c.rows == m && c.columns == n && c.type == d.type &&
         a.type == CUDA_R_16BF && b.type == CUDA_R_16BF;
}

/// Whether its epilogue has what it needs.
bool is_complete(const description& how, const layout& d) {
  const auto rows = static_cast<std::int64_t>(d.rows);
  const bool aux_fits = how.aux_ld >= rows && how.aux_ld % 8 == 0;
  return how.compute == CUBLAS_COMPUTE_32F && how.scale == CUDA_R_32F && how.supported() &&
         (!how.has_bias() || how.bias) && (!how.has_aux() || (how.aux && aux_fits));
}

/// In row-major order, the transpose of a column-major matrix is what is in its place.
cuda::operand operand_of(const layout& l, const void* at, bool turned) {
  const cuda::operand o{static_cast<const cuda::bf16*>(at), l.columns, l.rows,
                        static_cast<std::size_t>(l.ld)};
  return turned ? o.transposed() : o;
}

float value(const void* at, cudaDataType type, std::size_t i) {
  return type == CUDA_R_32F ? static_cast<const float*>(at)[i]
                            : cuda::to_float(static_cast<const cuda::bf16*>(at)[i]);
}

void compute(const work& w) {
  const auto turned_a = w.how.turned_a == CUBLAS_OP_T, turned_b = w.how.turned_b == CUBLAS_OP_T;
  const auto sums = troupe::test::multiplied(operand_of(w.b, w.from_b, turned_b),
                                             operand_of(w.a, w.from_a, turned_a));
  auto* aux = static_cast<cuda::bf16*>(w.how.aux);
  for (std::size_t c = 0; c < w.d.columns; ++c)
    for (std::size_t r = 0; r < w.d.rows; ++r) {
      const auto at = c * static_cast<std::size_t>(w.d.ld) + r;
      const auto aux_at = c * static_cast<std::size_t>(w.how.aux_ld) + r;
      float v = w.alpha * sums[c * w.d.rows + r];
      if (w.another_order) v *= 1 + 1.0f / (1 << 20);  // as if it had added in another order
      if (w.beta != 0) v += w.beta * value(w.from_c, w.d.type, at);
      if (w.how.has_bias()) v += value(w.how.bias, w.d.type, r);
      if (w.how.epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS) {
        aux[aux_at] = cuda::to_bf16(v);
        v *= cuda::gelu_cdf(v);
      }
      if (w.how.epilogue == CUBLASLT_EPILOGUE_DGELU)
        v *= cuda::gelu_slope(cuda::to_float(aux[aux_at]));
      if (w.d.type == CUDA_R_32F)
        static_cast<float*>(w.to)[at] = v;
      else
        static_cast<cuda::bf16*>(w.to)[at] = cuda::to_bf16(v);
    }
}

/// Operands in memory of the host are refused, too: some of cuBLASLt's kernels cannot read it.
bool all_on_gpu(const work& w, int device) {
  const auto on_gpu = [&](const void* p, std::size_t bytes) {
    return can_reach(p, bytes, memory_kind::gpu, device);
  };
  return on_gpu(w.from_a, w.a.bytes()) && on_gpu(w.from_b, w.b.bytes()) &&
         on_gpu(w.from_c, w.d.bytes()) && on_gpu(w.to, w.d.bytes()) &&
         (!w.how.has_bias() || on_gpu(w.how.bias, w.d.rows * w.d.value_bytes())) &&
         (!w.how.has_aux() ||
          on_gpu(w.how.aux,
                 ((w.d.columns - 1) * static_cast<std::size_t>(w.how.aux_ld) + w.d.rows) *
                     sizeof(cuda::bf16)));
}

bool keeps(const algorithm& a, const work& w) {
  const void* places[] = {w.from_a, w.from_b, w.from_c, w.to};
  for (std::size_t i = 0; i < 4; ++i)
    if (reinterpret_cast<std::uintptr_t>(places[i]) % a.alignments[i] != 0) return false;
  return a.epilogue == w.how.epilogue;
}

}  // namespace

extern "C" {

std::size_t cublasLtGetVersion() {
  return 130100;
}
const char* cublasLtGetStatusName(cublasStatus_t s) {
  return s == CUBLAS_STATUS_INVALID_VALUE ? "CUBLAS_STATUS_INVALID_VALUE" : "refused";
}
cublasStatus_t cublasLtCreate(cublasLtHandle_t* h) {
  *h = reinterpret_cast<cublasLtHandle_t>(new handle{current_device()});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t h) {
  delete reinterpret_cast<handle*>(h);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* d, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  *d = reinterpret_cast<cublasLtMatmulDesc_t>(new description{compute, scale});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d) {
  delete &of(d);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d,
                                              cublasLtMatmulDescAttributes_t what, const void* from,
                                              std::size_t bytes) {
  auto& to = of(d);
  switch (what) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return store(to.turned_a, from, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return store(to.turned_b, from, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return store(to.epilogue, from, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return store(to.bias, from, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
      return store(to.aux, from, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
      return store(to.aux_ld, from, bytes);
    default:
      return CUBLAS_STATUS_INVALID_VALUE;
  }
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* l, cudaDataType type,
                                          std::uint64_t rows, std::uint64_t columns,
                                          std::int64_t ld) {
  *l = reinterpret_cast<cublasLtMatrixLayout_t>(new layout{type, rows, columns, ld});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l) {
  delete &of(l);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* p) {
  *p = reinterpret_cast<cublasLtMatmulPreference_t>(new preference);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p) {
  delete &of(p);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t p,
                                                    cublasLtMatmulPreferenceAttributes_t what,
                                                    const void* from, std::size_t bytes) {
  auto& to = of(p);
  switch (what) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return store(to.workspace, from, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return store(to.schemes, from, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return store(to.alignment[what - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], from, bytes);
    default:
      return CUBLAS_STATUS_INVALID_VALUE;
  }
}

/// It gives the fastest algorithm that the preference allows: one with a reduction of undefined
/// order and as much workspace as it may have.
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t how,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t wish, int max,
                                              cublasLtMatmulHeuristicResult_t* best, int* found) {
  *found = 0;
  if (max < 1 || !fits(of(how), of(a), of(b), of(c), of(d)) || !is_complete(of(how), of(d)))
    return CUBLAS_STATUS_INVALID_VALUE;
  {
    std::lock_guard lock{guard()};
    ++seen().choices;
  }
  if (!switched().epilogues && of(how).epilogue != CUBLASLT_EPILOGUE_DEFAULT)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  algorithm chosen{};
  for (const auto scheme :
       {CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE,
        CUBLASLT_REDUCTION_SCHEME_INPLACE})
    if (of(wish).schemes & scheme) chosen.scheme = scheme;
  chosen.workspace = of(wish).workspace;
  chosen.epilogue = of(how).epilogue;
  for (int i = 0; i < 4; ++i)
    chosen.alignments[i] = of(wish).alignment.contains(i) ? of(wish).alignment[i] : 256;
  *best = {};
  std::memcpy(&best->algo, &chosen, sizeof chosen);
  best->workspaceSize = chosen.workspace;
  *found = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t h, cublasLtMatmulDesc_t how, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algo,
                              void* workspace, std::size_t workspace_bytes, cudaStream_t s) {
  const auto device = reinterpret_cast<handle*>(h)->device;
  if (device != current_device() || of(s).device != device) return CUBLAS_STATUS_EXECUTION_FAILED;
  if (!fits(of(how), of(a_layout), of(b_layout), of(c_layout), of(d_layout)) ||
      !is_complete(of(how), of(d_layout)))
    return CUBLAS_STATUS_INVALID_VALUE;
  algorithm by;
  std::memcpy(&by, algo, sizeof by);
  work w{of(how), of(a_layout), of(b_layout), of(d_layout), a, b, c, d, 0, 0, false};
  std::memcpy(&w.alpha, alpha, sizeof w.alpha);
  std::memcpy(&w.beta, beta, sizeof w.beta);
  if (of(c_layout).ld != w.d.ld || (w.beta != 0 && c == nullptr))
    return CUBLAS_STATUS_INVALID_VALUE;
  if (switched().runs && (!all_on_gpu(w, device) || !keeps(by, w)))
    return CUBLAS_STATUS_INVALID_VALUE;
  if (workspace_bytes < by.workspace ||
      !can_reach(workspace, workspace_bytes, memory_kind::gpu, device))
    return CUBLAS_STATUS_INVALID_VALUE;
  {
    std::lock_guard lock{guard()};
    w.another_order = by.scheme != CUBLASLT_REDUCTION_SCHEME_NONE &&
                      by.scheme != CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE &&
                      seen().products % 2 == 1;
    ++seen().products;
  }
  if (switched().runs) enqueue(of(s), [w] { compute(w); });
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
