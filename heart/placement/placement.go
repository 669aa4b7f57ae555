// Package placement decides on which node each replica runs. The rules are
// pure functions of what is to be placed and where; like the policies they
// compare with, they are deterministic.
package placement

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"heartbed/heart"
)

// Service is a component to be placed and what each of its replicas requests.
type Service struct {
	Name     string
	Replicas int
	CPU      float64 // cores
	MemoryMB float64
}

// Node is a machine and what it has to give; 0 = no limit known.
type Node struct {
	Name     string
	Cores    float64
	MemoryMB float64
}

// Input is what a rule places and where.
type Input struct {
	Services []Service
	Nodes    []Node
	RTT      [][]time.Duration // as heart.Topology.RTT, in the order of Nodes
}

var rules = map[string]func(Input) ([]heart.Replica, error){
	"larp":     func(in Input) ([]heart.Replica, error) { return LARP(in, NearFirst) },
	"larp-all": func(in Input) ([]heart.Replica, error) { return LARP(in, NearAll) },
	"pack":     Pack,
	"spread":   Spread,
}

// Rules lists the names that Place knows, in alphabetical order.
func Rules() []string { return slices.Sorted(maps.Keys(rules)) }

// Place places by the rule of that name. The replicas of service a are a1, a2
// and so on, in the order of the services.
func Place(rule string, in Input) ([]heart.Replica, error) {
	place, known := rules[rule]
	if !known {
		return nil, fmt.Errorf("placement rule %q is unknown, expected one of %s", rule, strings.Join(Rules(), ", "))
	}
	return place(in)
}

// Pack puts every replica on the first node that has room, services in their
// order: each service is on few nodes.
func Pack(in Input) ([]heart.Replica, error) {
	first := func(int) int { return 0 }
	return in.eachReplica(first)
}

// Spread deals the replicas over the nodes in turn, from service to service;
// nodes without room are passed over.
func Spread(in Input) ([]heart.Replica, error) {
	next := func(last int) int { return last + 1 }
	return in.eachReplica(next)
}

// eachReplica puts each replica on the first node with room, searching round
// from the node that start derives from the last one used.
func (in Input) eachReplica(start func(last int) int) ([]heart.Replica, error) {
	if err := in.validate(); err != nil {
		return nil, err
	}
	room := newRoom(in.Nodes)
	last := -1
	var replicas []heart.Replica
	var errs []error
	for _, s := range in.Services {
		for i := range s.Replicas {
			at := -1
			for k := range in.Nodes {
				n := (start(last) + k) % len(in.Nodes)
				if room.fits(n, s.CPU, s.MemoryMB) {
					at = n
					break
				}
			}
			name := s.replica(i)
			if at < 0 {
				errs = append(errs, fmt.Errorf("replica %s (%s) fits on no node", name, needs(s.CPU, s.MemoryMB)))
				continue
			}
			room.take(at, s.CPU, s.MemoryMB)
			replicas = append(replicas, heart.Replica{Name: name, Component: s.Name, Node: in.Nodes[at].Name})
			last = at
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return replicas, nil
}

// Given puts the replicas of each service on the nodes listed for it. It
// reports every list of the wrong length and every unknown name at once, and
// leaves it to the giver whether the nodes have room.
func Given(in Input, nodes map[string][]string) ([]heart.Replica, error) {
	var errs []error
	known := map[string]bool{}
	for _, n := range in.Nodes {
		known[n.Name] = true
	}
	services := map[string]bool{}
	var replicas []heart.Replica
	for _, s := range in.Services {
		services[s.Name] = true
		if len(nodes[s.Name]) != s.Replicas {
			errs = append(errs, fmt.Errorf("service %s has %d replicas, %d nodes are given", s.Name, s.Replicas, len(nodes[s.Name])))
		}
		for i, node := range nodes[s.Name] {
			if !known[node] {
				errs = append(errs, fmt.Errorf("replica %s: node %q is unknown", s.replica(i), node))
			}
			replicas = append(replicas, heart.Replica{Name: s.replica(i), Component: s.Name, Node: node})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(nodes)) {
		if !services[name] {
			errs = append(errs, fmt.Errorf("nodes are given for %q, which is no service", name))
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return replicas, nil
}

// replica names the replica of index i.
func (s Service) replica(i int) string { return s.Name + strconv.Itoa(i+1) }

func (in Input) validate() error {
	var errs []error
	if len(in.Nodes) == 0 {
		errs = append(errs, errors.New("there are no nodes"))
	}
	if len(in.RTT) != len(in.Nodes) {
		errs = append(errs, fmt.Errorf("RTT has %d rows for %d nodes", len(in.RTT), len(in.Nodes)))
	}
	for i, row := range in.RTT {
		if len(row) != len(in.Nodes) {
			errs = append(errs, fmt.Errorf("RTT row %d has %d values for %d nodes", i+1, len(row), len(in.Nodes)))
		}
	}
	for _, s := range in.Services {
		if s.Replicas < 0 || !(s.CPU >= 0) || !(s.MemoryMB >= 0) {
			errs = append(errs, fmt.Errorf("service %s: replicas %d, CPU %g and memory %g must not be negative",
				s.Name, s.Replicas, s.CPU, s.MemoryMB))
		}
	}
	return errors.Join(errs...)
}

func needs(cpu, memory float64) string { return fmt.Sprintf("%g cores, %g MB", cpu, memory) }
