package netns

import (
	"testing"

	"heartbed/testbed/testbedtest"
)

func TestContract(t *testing.T) { testbedtest.Run(t, liveBackend(t)) }
