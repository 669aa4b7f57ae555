//go:build !linux

package netns

const victimEnv = "HEARTBED_TEST_VICTIM"

func victim(string) {}
