#pragma once

#include <cublasLt.h>

#include <string>
#include <vector>

#include "gpu/cuda/runtime/library_search.hpp"

namespace troupe::gpu::cuda {

// The part of cuBLASLt in use here has the same binary interface in versions 12 and 13
// (headers 12.6 and 13.0 compared), so either library serves a program that was compiled for the
// other. These are the numbers and sizes that this relies on.
static_assert(CUBLASLT_MATMUL_DESC_TRANSA == 3 && CUBLASLT_MATMUL_DESC_TRANSB == 4 &&
              CUBLASLT_MATMUL_DESC_EPILOGUE == 7 && CUBLASLT_MATMUL_DESC_BIAS_POINTER == 8 &&
              CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER == 11 &&
              CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD == 12);
static_assert(CUBLASLT_EPILOGUE_DEFAULT == 1 && CUBLASLT_EPILOGUE_BIAS == 4 &&
              CUBLASLT_EPILOGUE_GELU_AUX_BIAS == 164 && CUBLASLT_EPILOGUE_DGELU == 192);
static_assert(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES == 1 &&
              CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK == 3 &&
              CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES == 5 &&
              CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES == 8 &&
              CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE == 2);
static_assert(CUBLAS_OP_T == 1 && CUBLAS_COMPUTE_32F == 68 && CUDA_R_32F == 0 && CUDA_R_16BF == 14);
static_assert(sizeof(cublasLtMatmulAlgo_t) == 64 && sizeof(cublasLtMatmulHeuristicResult_t) == 96);

/// cuBLASLt's functions. The library is loaded when the first GPU is opened.
struct blas_library {
  decltype(&cublasLtGetVersion) version = nullptr;
  decltype(&cublasLtGetStatusName) status_name = nullptr;
  decltype(&cublasLtCreate) create = nullptr;
  decltype(&cublasLtDestroy) destroy = nullptr;
  decltype(&cublasLtMatmul) matmul = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic = nullptr;
  decltype(&cublasLtMatmulDescCreate) create_desc = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) set_desc = nullptr;
  decltype(&cublasLtMatmulDescDestroy) destroy_desc = nullptr;
  decltype(&cublasLtMatrixLayoutCreate) create_layout = nullptr;
  decltype(&cublasLtMatrixLayoutDestroy) destroy_layout = nullptr;
  decltype(&cublasLtMatmulPreferenceCreate) create_preference = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) set_preference = nullptr;
  decltype(&cublasLtMatmulPreferenceDestroy) destroy_preference = nullptr;
  std::string why;  // why it cannot be used

  static const blas_library& loaded() {
    static const blas_library b;
    return b;
  }

  /// The major version that this was compiled for comes first, then the other one.
  static std::vector<std::string> names() {
    const std::string newer = "libcublasLt.so.13", older = "libcublasLt.so.12";
    return CUBLAS_VER_MAJOR >= 13 ? std::vector{newer, older} : std::vector{older, newer};
  }

  explicit blas_library(const found_library& found = find_library(names())) : why{found.why} {
    if (!found.library) return;
    const auto find = [&](const char* name, auto& to) {
      to = reinterpret_cast<std::decay_t<decltype(to)>>(dlsym(found.library, name));
      if (!to && why.empty()) why = found.file + " has no function " + name;
    };
    find("cublasLtGetVersion", version);
    find("cublasLtGetStatusName", status_name);
    find("cublasLtCreate", create);
    find("cublasLtDestroy", destroy);
    find("cublasLtMatmul", matmul);
    find("cublasLtMatmulAlgoGetHeuristic", heuristic);
    find("cublasLtMatmulDescCreate", create_desc);
    find("cublasLtMatmulDescSetAttribute", set_desc);
    find("cublasLtMatmulDescDestroy", destroy_desc);
    find("cublasLtMatrixLayoutCreate", create_layout);
    find("cublasLtMatrixLayoutDestroy", destroy_layout);
    find("cublasLtMatmulPreferenceCreate", create_preference);
    find("cublasLtMatmulPreferenceSetAttribute", set_preference);
    find("cublasLtMatmulPreferenceDestroy", destroy_preference);
  }
};

}  // namespace troupe::gpu::cuda
