# SPDX-License-Identifier: LGPL-2.1-or-later
"""How one OSD usually compares with its peers: no two healthy ones are the same, but each stays
what it is. So a change is seen that the spread between the OSDs would hide."""
import math

from .peers import MIN_SPREAD

#: Time constant of what is usual, and time until something is.
USUAL_SECONDS = 3600.0
LEARN_SECONDS = 300.0
#: Deviations beyond which a value teaches no more than at them.
CLIP = 2.0


class Habit:
    """Mean and variance of the logarithm of a score, exponentially weighted."""
    __slots__ = ('mean', 'variance', 'seconds')

    def __init__(self) -> None:
        self.mean = 0.0
        self.variance = MIN_SPREAD ** 2
        self.seconds = 0.0

    @property
    def known(self) -> bool:
        return self.seconds >= LEARN_SECONDS

    def sigma(self) -> float:
        return math.sqrt(max(self.variance, MIN_SPREAD ** 2))

    def learn(self, value: float, passed: float) -> None:
        self.seconds += passed
        # The plain average until there is enough to forget.
        rate = passed / min(self.seconds, USUAL_SECONDS) if passed else 0.0
        off = value - self.mean
        if self.known:
            bound = CLIP * self.sigma()
            off = min(max(off, -bound), bound)
        self.mean += rate * off
        self.variance += rate * (off * off - self.variance)
