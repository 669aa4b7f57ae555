package sim_test

import (
	"testing"

	"go.uber.org/goleak"

	"heartbed/testbed/sim"
	"heartbed/testbed/testbedtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestContract(t *testing.T) { testbedtest.Run(t, sim.Backend{}) }
