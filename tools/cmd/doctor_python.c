/*
 * The doctor's examination of a Python interpreter: which of its packages contain or call NCCL.
 *
 * A bounded child queries the interpreter for its search path; it runs only the interpreter's
 * start-up. Must never import a package.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/util/clock.h"
#include "core/util/macros.h"
#include "tools/base/run_helper.h"
#include "tools/cmd/doctor.h"

#define ASK_NS (10 * NG_S)

/* Files of packages, below a folder of sys.path. */
static const struct {
    const char *package, *pattern;
} bundles[] = {
    {"NCCL of pip", "nvidia/nccl/lib/libnccl.so*"},
    {"NCCL of pip", "nvidia/cu1*/lib/libnccl.so*"},
    {"PyTorch", "torch/lib/libnccl.so*"},
    {"PyTorch", "torch/lib/libtorch_cuda*.so"},
    {"PyTorch", "torch/lib/libtorch_python.so"},
    {"JAX", "jax_plugins/xla_cuda*/xla_cuda_plugin.so"},
    {"JAX", "jaxlib/xla_extension.so"},
    {"CuPy", "cupy/.data/lib/libnccl.so*"},
    {"CuPy", "cupy_backends/cuda/libs/nccl*.so"},
    {"TensorFlow", "tensorflow/libtensorflow_cc.so*"},
    {"TensorFlow", "tensorflow/python/_pywrap_tensorflow_internal.so"},
    {"Horovod", "horovod/*/mpi_lib*.so"},
    {"XGBoost", "xgboost/lib/libxgboost.so"},
    {"PaddlePaddle", "paddle/*/libpaddle.so"},
    {"PaddlePaddle", "paddle/libs/libnccl.so*"},
    {"MXNet", "mxnet/libmxnet.so"},
    {"ONNX Runtime", "onnxruntime/capi/libonnxruntime_providers_cuda.so"},
    {"Transformer Engine", "transformer_engine/*.so"},
    {"TensorRT-LLM", "tensorrt_llm/libs/*.so"},
    {"BytePS", "byteps/*/c_lib*.so"},
};

static void look_below(struct ng_doctor *doctor, const char *folder)
{
    for (size_t i = 0; i < NG_COUNT(bundles); i++)
        ng_doctor_files(doctor, folder, bundles[i].pattern, bundles[i].package);
}

/* Libraries that packages download themselves, or are configured to load. */
static void look_at_downloads(struct ng_doctor *doctor)
{
    const char *cupy = getenv("CUPY_CUDA_LIB_PATH"), *home = getenv("HOME");
    const char *vllm = getenv("VLLM_NCCL_SO_PATH");

    if (cupy && *cupy)
        ng_doctor_files(doctor, cupy, "*/nccl/*/lib/libnccl.so*", "CuPy");
    else if (home && *home)
        ng_doctor_files(doctor, home, ".cupy/cuda_lib/*/nccl/*/lib/libnccl.so*", "CuPy");
    if (vllm && *vllm)
        ng_doctor_file(doctor, vllm, "VLLM_NCCL_SO_PATH");
}

void ng_doctor_python(struct ng_doctor *doctor, char *const *command, bool executable_wanted)
{
    static char code[] = "import sys; print('\\n'.join([sys.executable or ''] + sys.path))";
    char *argv[24];
    struct ng_answer answer;
    size_t count = 0;

    while (count < 20 && command[count]) {
        argv[count] = command[count];
        count++;
    }
    argv[count++] = "-c";
    argv[count++] = code;
    argv[count] = NULL;
    int error = ng_ask(argv, NULL, ASK_NS, &answer);
    if (error != 0 || answer.late || !WIFEXITED(answer.status) || WEXITSTATUS(answer.status) != 0) {
        if (error == 0)
            answer.err[strcspn(answer.err, "\n")] = '\0';
        ng_doctor_warn(doctor, command[0], NULL,
                       "this Python does not tell where its packages are (%s), so they were not "
                       "looked at",
                       error         ? strerror(-error)
                       : answer.late ? "no answer in 10 s"
                       : *answer.err ? answer.err
                                     : "it failed");
        if (error == 0)
            ng_answer_fini(&answer);
        return;
    }
    char *rest = answer.out;
    char *executable = strsep(&rest, "\n");
    if (*executable && executable_wanted)
        ng_doctor_elf(doctor, executable);
    unsigned before = doctor->nccl_count;
    for (char *folder; (folder = strsep(&rest, "\n")) != NULL;)
        if (*folder)
            look_below(doctor, folder);
    look_at_downloads(doctor);
    if (doctor->nccl_count == before)
        ng_doctor_ok(doctor, *executable ? executable : command[0],
                     "no further NCCL is in the packages of this Python");
    ng_answer_fini(&answer);
}
