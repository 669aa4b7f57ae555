package kind

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"heartbed/tc"
)

// A node's quota is on the group of all its pods, inside the container, and
// not on the container: its kubelet and containerd answer in time however busy
// the pods are, and the pods get exactly the cores of the plan.

const (
	podsGroup      = "kubelet.slice/kubelet-kubepods.slice"
	burstableGroup = podsGroup + "/kubelet-kubepods-burstable.slice"
)

// rootGroup is the CPU group of a container, relative to the hierarchy's root.
func rootGroup(pid int) (string, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return "", err
	}
	return parseRootGroup(string(raw))
}

// parseRootGroup finds the group of a node's container in /proc/PID/cgroup of
// its systemd, which is in one below, init.scope.
func parseRootGroup(text string) (string, error) {
	unified := ""
	for line := range strings.Lines(text) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) != 3 {
			continue
		}
		group := strings.Trim(strings.TrimSuffix(f[2], "/init.scope"), "/")
		for controller := range strings.SplitSeq(f[1], ",") {
			if controller == "cpu" {
				return group, nil
			}
		}
		if f[0] == "0" {
			unified = group
		}
	}
	if unified == "" {
		return "", fmt.Errorf("found no CPU group in %q", text)
	}
	return unified, nil
}

// limitNodes puts the plan's cores into force for the pods of each node.
func (s *session) limitNodes(context.Context) error {
	for i, n := range s.Layout.Nodes {
		root, err := rootGroup(s.cluster.workers[i].pid)
		if err != nil {
			return fmt.Errorf("node %s: %w", n.Name, err)
		}
		group, err := tc.OpenGroup(path.Join(root, podsGroup))
		if err != nil {
			return fmt.Errorf("node %s: the group of its pods: %w", n.Name, err)
		}
		if err := group.Limit(s.Layout.NodeLimit(n.Cores)); err != nil {
			return fmt.Errorf("node %s: %w", n.Name, err)
		}
		s.NodeGroups = append(s.NodeGroups, group)
	}
	return nil
}

// findProcesses opens the CPU groups of the replicas and finds their processes
// on the host.
func (s *session) findProcesses(context.Context) error {
	for k, r := range s.Layout.Replicas {
		group, pid, err := findProcess(s.cluster.workers[r.On], s.workloads.Pods[k])
		if err != nil {
			return fmt.Errorf("replica %s: %w", r.Name, err)
		}
		s.Groups, s.pids = append(s.Groups, group), append(s.pids, pid)
	}
	return nil
}

// findProcess gives the CPU group of the only container of a pod of ours, and
// its process on the host.
func findProcess(node container, pod corev1.Pod) (*tc.Group, int, error) {
	root, err := rootGroup(node.pid)
	if err != nil {
		return nil, 0, err
	}
	_, id, _ := strings.Cut(pod.Status.ContainerStatuses[0].ContainerID, "://")
	uid := strings.ReplaceAll(string(pod.UID), "-", "_")
	group, err := tc.OpenGroup(path.Join(root, burstableGroup, "kubelet-kubepods-burstable-pod"+uid+".slice", "cri-containerd-"+id+".scope"))
	if err != nil {
		return nil, 0, err
	}
	pids, err := group.Processes()
	if err != nil {
		return nil, 0, err
	}
	if len(pids) == 0 {
		return nil, 0, errors.New("its container has no process")
	}
	return group, pids[0], nil
}

// verifyQuotas lets loops without end ask for all the CPU of a node, in a group
// beside those of its pods.
func (s *session) verifyQuotas(ctx context.Context) error {
	return s.VerifyQuotas(ctx, func(node, processes int) (stop func() error, err error) {
		root, err := rootGroup(s.cluster.workers[node].pid)
		if err != nil {
			return nil, err
		}
		group, err := tc.NewGroup(path.Join(root, podsGroup, "heartbed-burn"), tc.CPULimit{})
		if err != nil {
			return nil, err
		}
		var loops []*exec.Cmd
		stop = func() error {
			for _, loop := range loops {
				_ = loop.Process.Kill() // fails only when it has ended
				_ = loop.Wait()         // it was killed, which is an error
			}
			return group.Remove()
		}
		for range processes {
			loop := exec.Command("/bin/sh", "-c", "while :; do :; done")
			if err := loop.Start(); err != nil {
				return nil, errors.Join(err, stop())
			}
			loops = append(loops, loop)
			if err := group.Add(loop.Process.Pid); err != nil {
				return nil, errors.Join(err, stop())
			}
		}
		return stop, nil
	})
}
