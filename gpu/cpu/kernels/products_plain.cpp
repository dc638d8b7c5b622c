#define Eigen Eigen_plain
#define TROUPE_PRODUCT plain_product
#include "gpu/cpu/kernels/products.inc.hpp"
