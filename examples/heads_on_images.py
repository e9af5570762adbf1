"""Measure whether the heads of a ViT divide the work: near patches, like colours, like meaning.

You learn: the weights between patches; one comparison for each claim; an untrained model as the control, which is what
runs without an argument. For a trained model (half an hour, 139 MB of photographs):

    jumok train image --data cifar10 --steps 2000 --batch 64 --out photos
    python examples/heads_on_images.py photos
"""

import sys

import torch

import jumok
from jumok.data.datasets.image_galleries import load_cifar10
from jumok.models import ViT, ViTConfig

COUNT, SIZE = 100, 2100  # images to measure, images to choose from
row, column = torch.arange(64) // 8, torch.arange(64) % 8  # 8 x 8 patches of 4 x 4 pixels
distance = torch.maximum((row[:, None] - row).abs(), (column[:, None] - column).abs())
torch.manual_seed(0)
if len(sys.argv) > 1:
    loaded, photos = jumok.load(sys.argv[1]), load_cifar10("test")
    model, images, labels = loaded.model, photos.pixels[:SIZE].float(), photos.labels[:SIZE]
    mean, std = (torch.tensor(numbers)[:, None, None] for numbers in (loaded.preparation.mean, loaded.preparation.std))
else:
    model = ViT(ViTConfig(image=(32, 32), patch=(4, 4), width=96, layers=2, heads=4, hidden=192, classes=10)).eval()
    images, labels = torch.rand(SIZE, 3, 32, 32) * 255, torch.arange(SIZE) % 10
    mean = std = torch.full((3, 1, 1), 0.5)


def compute_weights(pixels):
    """Return [head of all layers, query patch, key patch], without the class token; rows sum to 1."""
    with jumok.Lens(model) as lens:
        capture = lens.run(((pixels / 255 - mean) / std)[None])
    weights = torch.cat([capture.weights(layer=layer) for layer in range(model.config.layers)])[:, 1:, 1:]
    return weights / weights.sum(-1, keepdim=True)


near, colour, meaning, averages = [], [], [], images.mean((2, 3))
for index in range(COUNT):
    weights = compute_weights(images[index])
    near.append(weights[:, distance == 1].mean(-1) * 64)  # neighbours; 1 = equal weights
    colours = torch.nn.functional.avg_pool2d(images[index], 4).flatten(1).T
    difference, far = torch.cdist(colours, colours), distance >= 3
    like = far & (difference <= difference[far].quantile(0.25))
    colour.append(weights[:, like].mean(-1) / weights[:, far].mean(-1))
    # another right half: of the same class, and of another class with the nearest colours
    pool = torch.arange(COUNT, SIZE)
    same, different = pool[labels[pool] == labels[index]][index], pool[labels[pool] != labels[index]]
    partners = same, different[(averages[different] - averages[same]).norm(dim=1).argmin()]
    joined = [torch.cat([images[index][..., :16], images[partner][..., 16:]], dim=-1) for partner in partners]
    shares = [compute_weights(image)[:, column < 4][..., column >= 4].sum(-1).mean(-1) for image in joined]
    meaning.append(1 + (shares[0] - shares[1]) / 0.5)  # 0.5: the share of the half under equal weights

for name, quotients in (("near", near), ("colour", colour), ("meaning", meaning)):
    average, error = torch.stack(quotients).mean(0), torch.stack(quotients).std(0) / COUNT**0.5
    clear, best = int((average - 1 > 3 * error).sum()), int(average.argmax())
    print(f"{name}: {clear} of {len(average)} heads")
    print(f"  {best // model.config.heads}.{best % model.config.heads}: {average[best]:.2f} +- {error[best]:.2f}")
