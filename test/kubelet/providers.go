//go:build !kubernetes137

package main

import (
	v1 "k8s.io/api/core/v1"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// The providers of Kubernetes' servers, in releases before 1.37.

func (n *node) UpdateAllocatedDevices() { n.update() }

func (n *node) GetAllocatableDevices() []*podresourcesv1.ContainerDevices { return n.allocatable() }

func (n *node) GetDynamicResources(pod *v1.Pod, c *v1.Container) []*podresourcesv1.DynamicResource {
	return n.claims(pod, c)
}

func (n *node) GetCPUs(string, string) []int64 { return cpus() }

func (n *node) GetMemory(string, string) []*podresourcesv1.ContainerMemory { return memory(1 << 30) }

func (n *node) GetAllocatableMemory() []*podresourcesv1.ContainerMemory { return memory(1 << 40) }
