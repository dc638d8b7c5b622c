#!/bin/sh
# ccache COMPILER ARGUMENTS..., with paths below the checkout taken relative to the folder of the build, and that folder
# left out: all checkouts share the objects of equal sources. CCACHE_BASEDIR and CCACHE_NOHASHDIR of the caller stay.
: "${CCACHE_BASEDIR:=${0%/cmake/ccache.sh}}" "${CCACHE_NOHASHDIR:=1}"
export CCACHE_BASEDIR CCACHE_NOHASHDIR
exec ccache "$@"
