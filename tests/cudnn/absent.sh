#!/bin/sh
# Stands for tests/cudnn/test_graphs where the CUDA plug-in is not built.
echo "skip cuDNN graphs: built without CUDA"
