"""The GPU computes what the CPU computes: a matrix product, a cuDNN convolution, one step in mixed precision."""

import gpulib
import smokelib

gpulib.gpu()

import torch  # noqa: E402  its absence has a message of its own

REMEDY = "driver, wheel and GPU do not fit together: `buildkit diagnose` says which"


def product() -> None:
    """Multiply two matrices on both."""
    left, right = torch.randn(512, 512), torch.randn(512, 512)
    difference = float(((left.cuda() @ right.cuda()).cpu() - left @ right).abs().max())
    print(f"matmul: largest difference {difference:.1e}")
    smokelib.require(difference < 1e-2, f"matmul differs by {difference}", REMEDY)


def convolution() -> None:
    """Convolve on both, the GPU with cuDNN."""
    smokelib.require(torch.backends.cudnn.is_available(), "torch finds no cuDNN", REMEDY)
    image, kernel = torch.randn(4, 8, 32, 32), torch.randn(16, 8, 3, 3)
    convolved = torch.nn.functional.conv2d(image.cuda(), kernel.cuda()).cpu()
    difference = float((convolved - torch.nn.functional.conv2d(image, kernel)).abs().max())
    print(f"cuDNN {torch.backends.cudnn.version()} convolution: largest difference {difference:.1e}")
    smokelib.require(difference < 1e-2, f"convolution differs by {difference}", REMEDY)


def mixed_precision() -> None:
    """Do one optimiser's step in half precision, with a scaled loss."""
    network = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1)).cuda()
    optimiser = torch.optim.Adam(network.parameters())
    # torch.amp has a scaler since 2.3; before that only torch.cuda.amp had.
    scaler = torch.amp.GradScaler("cuda") if hasattr(torch.amp, "GradScaler") else torch.cuda.amp.GradScaler()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = network(torch.randn(256, 64, device="cuda")).square().mean()
    scaler.scale(loss).backward()
    scaler.step(optimiser)
    scaler.update()
    print(f"mixed precision: loss {float(loss):.4f}")
    finite = bool(loss.isfinite()) and all(bool(p.isfinite().all()) for p in network.parameters())
    smokelib.require(finite, "the mixed-precision step is not finite", REMEDY)


torch.manual_seed(1)
torch.backends.cuda.matmul.allow_tf32 = False
torch.backends.cudnn.allow_tf32 = False
with gpulib.explained():
    product()
    convolution()
    mixed_precision()
