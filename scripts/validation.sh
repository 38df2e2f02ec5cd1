#!/usr/bin/env bash
# Tests under the Vulkan validation layer with synchronization validation, which read what the driver is asked for: a wrong call, a hazard between
# two passes or copies. Anything they say is a failure.
#
#   scripts/validation.sh [ARGUMENTS OF cargo test]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
mkdir -p target/validation
cat >target/validation/vk_layer_settings.txt <<'SETTINGS'
khronos_validation.debug_action = VK_DBG_LAYER_ACTION_LOG_MSG
khronos_validation.report_flags = error,warn,info
khronos_validation.log_filename = stdout
khronos_validation.enables = VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT
SETTINGS
log=target/validation/log.txt
export VK_LAYER_SETTINGS_PATH=$PWD/target/validation/vk_layer_settings.txt VK_INSTANCE_LAYERS=VK_LAYER_KHRONOS_validation
bash scripts/tests.sh "$@" >"$log" || { cat "$log"; exit 1; }
grep -q 'Khronos Validation Layer Active' "$log" || { echo 'validation: the layer did not run' >&2; exit 1; }
if grep -E 'Validation (Error|Warning)' "$log" | sort | uniq -c | grep .; then
    echo "validation: the layer found something, see $log" >&2
    exit 1
fi
grep '^test result' "$log"
