"""The GPU computes what the CPU computes: a matrix product, a cuDNN convolution, one step in mixed precision."""

import smokelib
import torch

smokelib.require(torch.cuda.is_available(), "torch falls back to the CPU", "see the check gpu-torch")
todo = "driver, wheel and GPU do not fit together; see `buildkit doctor`"
torch.manual_seed(1)
torch.backends.cuda.matmul.allow_tf32 = False
torch.backends.cudnn.allow_tf32 = False

left, right = torch.randn(512, 512), torch.randn(512, 512)
difference = float(((left.cuda() @ right.cuda()).cpu() - left @ right).abs().max())
print(f"matmul: largest difference {difference:.1e}")
smokelib.require(difference < 1e-2, f"matmul differs by {difference}", todo)

smokelib.require(torch.backends.cudnn.is_available(), "torch finds no cuDNN", todo)
image, kernel = torch.randn(4, 8, 32, 32), torch.randn(16, 8, 3, 3)
convolved = torch.nn.functional.conv2d(image.cuda(), kernel.cuda()).cpu()
difference = float((convolved - torch.nn.functional.conv2d(image, kernel)).abs().max())
print(f"cuDNN {torch.backends.cudnn.version()} convolution: largest difference {difference:.1e}")
smokelib.require(difference < 1e-2, f"convolution differs by {difference}", todo)

network = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1)).cuda()
optimiser = torch.optim.Adam(network.parameters())
scaler = torch.cuda.amp.GradScaler()
with torch.autocast("cuda", dtype=torch.float16):
    loss = network(torch.randn(256, 64, device="cuda")).square().mean()
scaler.scale(loss).backward()
scaler.step(optimiser)
scaler.update()
print(f"mixed precision: loss {float(loss):.4f}")
smokelib.require(
    bool(loss.isfinite()) and all(bool(p.isfinite().all()) for p in network.parameters()),
    "the mixed-precision step is not finite",
    todo,
)
