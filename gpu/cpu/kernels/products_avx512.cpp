#define Eigen Eigen_avx512
#define TROUPE_PRODUCT avx512_product
#include "gpu/cpu/kernels/products.inc.hpp"
