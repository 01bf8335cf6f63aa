//go:build kubernetes137

package main

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// The providers of Kubernetes' servers, in 1.37. Pods have no resources of their own here.

func (n *node) UpdateAllocatedDevices(klog.Logger) { n.update() }

func (n *node) GetAllocatableDevices(klog.Logger) []*podresourcesv1.ContainerDevices {
	return n.allocatable()
}

func (n *node) GetDynamicResources(_ klog.Logger, pod *v1.Pod, c *v1.Container) []*podresourcesv1.DynamicResource {
	return n.claims(pod, c)
}

func (n *node) GetCPUs(*v1.Pod, *v1.Container) []int64 { return cpus() }

func (n *node) GetPodCPUs(string) []int64 { return nil }

func (n *node) GetMemory(klog.Logger, *v1.Pod, *v1.Container) []*podresourcesv1.ContainerMemory {
	return memory(1 << 30)
}

func (n *node) GetPodMemory(klog.Logger, string) []*podresourcesv1.ContainerMemory { return nil }

func (n *node) GetAllocatableMemory(klog.Logger) []*podresourcesv1.ContainerMemory {
	return memory(1 << 40)
}
