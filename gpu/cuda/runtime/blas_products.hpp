#pragma once

#include <array>
#include <map>
#include <stdexcept>
#include <tuple>

#include "gpu/cuda/runtime/cuda_errors.hpp"

namespace troupe::gpu::cuda {

/// cuBLASLt's description of a product, cached by shape and kind.
struct plan {
  cublasLtMatmulDesc_t how = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr;
  cublasLtMatmulAlgo_t algorithm{};
  bool found = false;  // cuBLASLt supports it with its epilogue
};

enum class after : int { nothing, bias, gelu, slope };

inline after after_of(const product& p) {
  if (p.before) return after::gelu;
  if (p.slope_at) return after::slope;
  return p.bias || p.narrow_bias ? after::bias : after::nothing;
}

/// Largest power of two, up to 16, that divides an address. No kernel needs more, and cuBLASLt's
/// choice of algorithm must not depend on the place of a parameter.
inline std::uint32_t alignment_of(const void* p) {
  const auto at = reinterpret_cast<std::uintptr_t>(p) | 16u;
  return static_cast<std::uint32_t>(at & (~at + 1));
}

/// A GPU's matrix products by cuBLASLt.
class blas_products {
 public:
  /// On the current device. Throws std::runtime_error.
  void open(cudaStream_t stream) {
    stream_ = stream;
    BLAS(create, &handle_);
    CALL(cudaMalloc, &workspace_, workspace_bytes);
  }
  /// No product may be running any more.
  void close() noexcept {
    for (auto& [key, p] : plans_) {
      if (p.how) blas_.destroy_desc(p.how);
      for (auto layout : {p.a, p.b, p.c})
        if (layout) blas_.destroy_layout(layout);
    }
    blas_.destroy(handle_);
    cudaFree(workspace_);
  }

  /// False: cuBLASLt does not support the epilogue. It made a plain product, after which comes
  /// launches::finish.
  bool multiply(const product& p) {
    const auto what = after_of(p);
    if (auto& fused = plan_of(p, what); fused.found) {
      multiply(p, fused, what);
      return true;
    }
    auto bare = p;
    if (p.before) bare.narrow = p.before;
    auto& alone = plan_of(bare, after::nothing);
    if (!alone.found)
      throw std::runtime_error("cuBLASLt has no algorithm for a product of these shapes");
    multiply(bare, alone, after::nothing);
    return false;
  }

 private:
  // cuBLASLt is column-major: a row-major c = a b is c' = b' a' there, so its first factor is our
  // second one. A row-major matrix is the transpose in column-major order.
  using shape = std::tuple<std::size_t, std::size_t, std::size_t, std::size_t, std::size_t,
                           std::size_t, bool, bool, bool, bool, int, std::uint32_t>;

  static shape shape_of(const product& p, after what) {
    std::uint32_t aligned =
        alignment_of(p.a.at) < alignment_of(p.b.at) ? alignment_of(p.a.at) : alignment_of(p.b.at);
    const void* to = p.wide ? static_cast<const void*>(p.wide) : p.narrow;
    if (alignment_of(to) < aligned) aligned = alignment_of(to);
    return {p.a.rows,
            p.b.columns,
            p.a.columns,
            p.a.stride,
            p.b.stride,
            p.stride,
            p.a.turned,
            p.b.turned,
            p.wide,
            p.plus != nullptr,
            static_cast<int>(what),
            aligned};
  }

  static cublasLtMatrixLayout_t layout_of(const operand& o) {
    const auto rows = o.turned ? o.columns : o.rows, columns = o.turned ? o.rows : o.columns;
    cublasLtMatrixLayout_t layout = nullptr;
    BLAS(create_layout, &layout, CUDA_R_16BF, columns, rows, static_cast<std::int64_t>(o.stride));
    return layout;
  }
  template <class T>
  static void set(cublasLtMatmulDesc_t how, cublasLtMatmulDescAttributes_t what, const T& value) {
    BLAS(set_desc, how, what, &value, sizeof value);
  }

  /// An epilogue's pointers change from call to call.
  static void set_pointers(cublasLtMatmulDesc_t how, const product& p, after what) {
    const void* bias = p.wide ? static_cast<const void*>(p.bias) : p.narrow_bias;
    if (what == after::bias || what == after::gelu)
      set(how, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
    const void* other = what == after::gelu ? p.before : p.slope_at;
    if (what == after::gelu || what == after::slope)
      set(how, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, other);
  }

  plan& plan_of(const product& p, after what) {
    const auto key = shape_of(p, what);
    if (const auto known = plans_.find(key); known != plans_.end()) return known->second;
    auto& made = plans_[key];
    BLAS(create_desc, &made.how, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    set(made.how, CUBLASLT_MATMUL_DESC_TRANSA, p.b.turned ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(made.how, CUBLASLT_MATMUL_DESC_TRANSB, p.a.turned ? CUBLAS_OP_T : CUBLAS_OP_N);
    const cublasLtEpilogue_t epilogue = what == after::bias    ? CUBLASLT_EPILOGUE_BIAS
                                        : what == after::gelu  ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS
                                        : what == after::slope ? CUBLASLT_EPILOGUE_DGELU
                                                               : CUBLASLT_EPILOGUE_DEFAULT;
    set(made.how, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
    if (what == after::gelu || what == after::slope)
      set(made.how, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, static_cast<std::int64_t>(p.stride));
    set_pointers(made.how, p, what);
    made.a = layout_of(p.b);
    made.b = layout_of(p.a);
    BLAS(create_layout, &made.c, p.wide ? CUDA_R_32F : CUDA_R_16BF, p.b.columns, p.a.rows,
         static_cast<std::int64_t>(p.stride));
    choose(made, std::get<std::uint32_t>(key));
    return made;
  }

  /// cuBLASLt's fastest algorithm among those with a deterministic order of additions.
  void choose(plan& made, std::uint32_t aligned) {
    cublasLtMatmulPreference_t wish = nullptr;
    BLAS(create_preference, &wish);
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t what, auto value) {
      BLAS(set_preference, wish, what, &value, sizeof value);
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<std::uint64_t>(workspace_bytes));
    prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
           static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    for (const auto what :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
      prefer(what, aligned);
    cublasLtMatmulHeuristicResult_t best{};
    int found = 0;
    const auto status =
        blas_.heuristic(handle_, made.how, made.a, made.b, made.c, made.c, wish, 1, &best, &found);
    blas_.destroy_preference(wish);
    made.found = status == CUBLAS_STATUS_SUCCESS && found > 0;
    made.algorithm = best.algo;
  }

  void multiply(const product& p, const plan& with, after what) {
    set_pointers(with.how, p, what);
    const float one = 1, added = p.plus ? 1.0f : 0.0f;
    void* to = p.wide ? static_cast<void*>(p.wide) : p.narrow;
    const void* plus = p.plus ? p.plus : to;
    BLAS(matmul, handle_, with.how, &one, p.b.at, with.a, p.a.at, with.b, &added, plus, with.c, to,
         with.c, &with.algorithm, workspace_, workspace_bytes, stream_);
  }

  const blas_library& blas_ = blas_library::loaded();
  cublasLtHandle_t handle_ = nullptr;
  cudaStream_t stream_ = nullptr;
  void* workspace_ = nullptr;
  std::map<shape, plan> plans_;
};

}  // namespace troupe::gpu::cuda
