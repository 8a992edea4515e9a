# From requirements.txt to the same packages for a machine without CUDA: sed -E -f envs/cpu.sed envs/requirements.txt
# PyTorch's builds for CPUs, from https://download.pytorch.org/whl/cpu, need none of CUDA's packages.
/^(cuda|nvidia|triton)/d
s/^(torch|torchvision)==[^ ]+/&+cpu/
