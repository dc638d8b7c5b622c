#define Eigen Eigen_avx2
#define TROUPE_PRODUCT avx2_product
#include "gpu/cpu/kernels/products.inc.hpp"
