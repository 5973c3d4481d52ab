"""Pictures of contact maps: they are written whole, with and without a truth."""

import matplotlib.image
import numpy as np

from evoformer.contacts.plot import Panel, plot_contacts

N_res = 15


def panel(distances):
    generator = np.random.default_rng(0)
    return Panel("map", generator.normal(size=(N_res, N_res)), distances)


def test_a_picture_has_one_map_a_panel(tmp_path):
    distances = np.random.default_rng(1).uniform(3, 20, (N_res, N_res))
    distances[4] = distances[:, 4] = np.nan
    plot_contacts([panel(None)], tmp_path / "one.png")
    plot_contacts([panel(None), panel(distances), panel(distances)], tmp_path / "three.png")
    one, three = (matplotlib.image.imread(tmp_path / f"{name}.png") for name in ("one", "three"))
    assert three.shape[1] == 3 * one.shape[1]
    assert {path.name for path in tmp_path.iterdir()} == {"one.png", "three.png"}


def test_right_pairs_are_blue_and_wrong_ones_red(tmp_path):
    def colours(distances):
        plot_contacts([panel(distances)], tmp_path / "map.png")
        pixels = matplotlib.image.imread(tmp_path / "map.png")[..., :3].reshape(-1, 3)
        red, _, blue = pixels.T
        return {"blue": (blue > red + 0.3).any(), "red": (red > blue + 0.3).any()}

    assert colours(np.full((N_res, N_res), 5.0)) == {"blue": True, "red": False}
    assert colours(np.full((N_res, N_res), 15.0)) == {"blue": False, "red": True}


def test_a_chain_too_short_for_a_contact_is_drawn(tmp_path):
    plot_contacts([Panel("short", np.zeros((4, 4)), np.ones((4, 4)))], tmp_path / "short.png")
    assert (tmp_path / "short.png").is_file()
